"""Drift detection: what it finds is what river finds, value by value, in whichever batches the values come."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.spark.pipelines.sql.parse import parse
from anabranch.spark.pipelines.windows.columns import KEY, OFFSET, SEGMENT, TIME
from anabranch.spark.pipelines.windows.drift import DRIFT, VALUE, DriftDetector, detect
from anabranch.spark.pipelines.windows.row_blobs import pack, unpack

KEYS = (f"{KEY}0",)


def values(seed: int) -> pa.Table:
    """Values of three keys in turn, whose means change at different places."""
    chance = np.random.default_rng(seed)
    count = 3_000
    keys = chance.integers(3, size=count)
    means = np.where(np.arange(count) < 800 + 600 * keys, 5.0, 5.0 + 4 * (keys + 1))
    found: list[float | None] = chance.normal(means, 1).tolist()
    for row, each in ((5, None), (700, math.nan), (2_500, math.inf)):
        found[row] = each
    return table([None if key == 2 else f"d{key}" for key in keys], found)


def table(keys: list[str | None], values: list[float | None]) -> pa.Table:
    """A value of each of these keys in turn."""
    count = len(keys)
    return pa.table(
        {
            KEYS[0]: pa.array(keys, pa.string()),
            VALUE: pa.array(values, pa.float64()),
            TIME: pa.array(np.arange(count) * 1_000, pa.timestamp("us", "UTC")),
            SEGMENT: pa.array(np.full(count, 7)),
            OFFSET: pa.array(np.arange(count)),
        }
    )


def adwin(**options: Any) -> Any:
    from river.drift import ADWIN  # takes seconds to import

    return ADWIN(**options)


def page_hinkley(**options: Any) -> Any:
    from river.drift import PageHinkley

    return PageHinkley(**options)


def by_river(rows: pa.Table, make: Any) -> list[tuple[str | None, int]]:
    """Keys and offsets at which a detector for each key, used as its documentation says, finds drift."""
    detectors: dict[str | None, Any] = {}
    found = []
    for row in rows.to_pylist():
        if row[VALUE] is not None and math.isfinite(row[VALUE]):
            detector = detectors.setdefault(row[KEYS[0]], make())
            detector.update(row[VALUE])
            if detector.drift_detected:
                found.append((row[KEYS[0]], row[OFFSET]))
    return found


@pytest.mark.parametrize(
    ("detector", "make"),
    [
        (DriftDetector("adwin"), adwin),
        (DriftDetector("adwin", {"delta": 0.1, "clock": 1}), lambda: adwin(delta=0.1, clock=1)),
        (DriftDetector("page_hinkley"), page_hinkley),
        (
            DriftDetector("page_hinkley", {"threshold": 20.0, "mode": "up"}),
            lambda: page_hinkley(threshold=20, mode="up"),
        ),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_drift_is_what_river_finds_in_whichever_batches(detector: DriftDetector, make: Any, seed: int) -> None:
    rows = values(seed)
    expected = by_river(rows, make)
    assert {key for key, _ in expected} == {"d0", "d1", None}
    chance = np.random.default_rng(seed)
    edges = [0, *sorted(chance.integers(rows.num_rows, size=20).tolist()), rows.num_rows]
    state: pa.Table | None = None
    found = []
    for start, stop in pairwise(edges):
        changes, state = detect(rows.slice(start, stop - start), state, detector, KEYS)
        state = unpack(pack(state, compressed=True))
        for change in changes.to_pylist():
            found.append((change[KEYS[0]], change[DRIFT]["offset"]))
            row = rows.slice(change[DRIFT]["offset"], 1).to_pylist()[0]
            drift = change[DRIFT]
            assert (drift["segment"], drift["time"], drift["value"]) == (7, row[TIME], row[VALUE])
    assert found == expected
    assert state is not None and state.num_rows == 3


LEVELS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([-20.0, 0.0, 3.0, 50.0]), st.integers(1, 150)),
    min_size=1,
    max_size=12,
)
"""Whose values follow, around which mean, and how many."""
ADWINS = st.fixed_dictionaries(
    {"delta": st.sampled_from([0.002, 0.1, 0.5]), "clock": st.sampled_from([1, 8, 32])},
    optional={"grace_period": st.integers(5, 30), "min_window_length": st.integers(2, 10)},
)
PAGE_HINKLEYS = st.fixed_dictionaries(
    {"threshold": st.sampled_from([2.0, 20.0]), "mode": st.sampled_from(["up", "down", "both"])},
    optional={"min_instances": st.integers(1, 40), "alpha": st.sampled_from([0.99, 0.9999])},
)


@settings(max_examples=40)
@given(LEVELS, st.one_of(ADWINS, PAGE_HINKLEYS), st.integers(0, 1 << 32), st.lists(st.integers(0, 1_500), max_size=8))
def test_drift_of_random_levels_is_what_river_finds_with_the_means_of_a_model(
    levels: list[tuple[str | None, float, int]], parameters: dict[str, Any], seed: int, cuts: list[int]
) -> None:
    chance = np.random.default_rng(seed)
    keys = [key for key, _, count in levels for _ in range(count)]
    found = np.concatenate([chance.normal(mean, 1, count) for _, mean, count in levels]).tolist()
    missing = chance.random(len(keys))
    for row, each in enumerate(missing):
        if each < 0.03:
            found[row] = (None, math.nan, math.inf)[int(each * 100)]
    rows = table(keys, found)
    adaptive = "clock" in parameters
    detector = DriftDetector("adwin" if adaptive else "page_hinkley", parameters)
    expected = by_river(rows, lambda: (adwin if adaptive else page_hinkley)(**parameters))
    state: pa.Table | None = None
    changes: list[dict[str, Any]] = []
    for start, stop in pairwise(sorted({0, len(keys), *(each for each in cuts if each < len(keys))})):
        detected, state = detect(rows.slice(start, stop - start), state, detector, KEYS)
        state = unpack(pack(state, compressed=True))
        changes += detected.to_pylist()
    assert [(each[KEYS[0]], each[DRIFT]["offset"]) for each in changes] == expected
    for key in set(keys):
        own = [each[DRIFT] for each in changes if each[KEYS[0]] == key]
        valued = [(row, v) for row, (k, v) in enumerate(zip(keys, found, strict=True)) if k == key and plausible(v)]
        for drift, means in zip(own, means_by_definition(valued, [each["offset"] for each in own]), strict=True):
            assert (drift["mean_before"], drift["mean_after"]) == pytest.approx(means, abs=1e-6)


def plausible(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def means_by_definition(values: list[tuple[int, float]], changes: list[int]) -> list[tuple[float, float]]:
    """For each change, found at an offset: of the values since the last one, those before and after the place, among the
    last 100, where two means fit them best."""
    means, since = [], list[float]()
    for offset, value in values:
        since.append(value)
        if offset in changes:
            first = max(0, len(since) - 100)
            if len(since) == 1:
                place = 0
            else:
                last = since[first:]
                splits = range(1, len(last))
                place = first + min(
                    splits, key=lambda at: np.var(last[:at]) * at + np.var(last[at:]) * (len(last) - at)
                )
            after = since[place:]
            means.append((float(np.mean(since[:place] or after)), float(np.mean(after))))
            since = after
    return means


def test_the_means_are_those_before_and_after_the_change() -> None:
    rows = values(1)
    for method in ("adwin", "page_hinkley"):
        changes, _ = detect(rows, None, DriftDetector(method), KEYS)  # type: ignore[arg-type]
        first = next(change[DRIFT] for change in changes.to_pylist() if change[KEYS[0]] == "d1")
        assert first["mean_before"] == pytest.approx(5, abs=0.2)
        assert first["mean_after"] == pytest.approx(13, abs=2)


def test_parameters_that_river_refuses_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="page_hinkley: Invalid 'mode'"):
        detect(values(0), None, DriftDetector("page_hinkley", {"mode": "sideways"}), KEYS)


SQL = """
CREATE STREAM iot.drifts WITH (key = device) AS
SELECT device, drift.time AS at, drift.mean_before,
       drift.mean_after
FROM STREAM iot.sensors
WHERE unit IS DISTINCT FROM 'F'
DETECT DRIFT OF celsius * 1.8 BY device, `the room`
USING page_hinkley(threshold => 20, mode => 'up')
"""


def test_the_clause_is_divided_into_values_and_results() -> None:
    (statement,) = parse(SQL)
    assert statement.windowed is not None and statement.windowed.detects_drift
    assert statement.windowed.window == DriftDetector(
        "page_hinkley", {"threshold": 20.0, "mode": "up"}, ("device", "the room")
    )
    assert "CAST((celsius * 1.8) AS DOUBLE)" in statement.windowed.events
    assert statement.windowed.events.rstrip().endswith("WHERE unit IS DISTINCT FROM 'F'")
    assert statement.windowed.results.endswith("FROM anabranch_windows AS `sensors`")
    (plain,) = parse("CREATE STREAM a.b AS SELECT * FROM STREAM iot.sensors AS s DETECT DRIFT OF s.celsius")
    assert plain.windowed is not None
    assert plain.windowed.window == DriftDetector("adwin")
    assert plain.windowed.results.endswith("AS `s`")


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("OF celsius * 1.8 BY", "OF BY", "expected SELECT", 7),
        ("BY device, `the room`", "BY 'device'", "expected SELECT", 7),
        ("page_hinkley(", "kswin(", "expected SELECT", 8),
        ("threshold => 20", "treshold => 20", "page_hinkley has the parameters min_instances", 8),
        ("threshold => 20", "threshold => 'much'", "threshold is a number, not much", 8),
        ("threshold => 20", "threshold 20", "expected => and a value", 8),
        ("mode => 'up')", "mode => 'up'", "never closed", 8),
        ("mode => 'up')", "mode => 'up') now", "expected SELECT", 8),
        ("WHERE unit", "JOIN iot.rooms USING (device) WHERE unit", "expected SELECT", 6),
        ("FROM 'F'", "FROM 'F' GROUP BY device", "expected SELECT", 6),
        ("SELECT device", "SELECT sum(1) OVER () AS n, device", "expected SELECT", 3),
    ],
)
def test_what_the_clause_can_not_say_is_refused_at_its_line(old: str, new: str, message: str, line: int) -> None:
    with pytest.raises(InvalidSql) as refused:
        parse(SQL.replace(old, new))
    assert message in str(refused.value)
    assert refused.value.line == line


def test_only_drift_starts_a_query() -> None:
    with pytest.raises(InvalidSql, match="start_query requires DETECT DRIFT"):
        parse("CREATE STREAM a.b WITH (start_query = x) AS SELECT * FROM STREAM iot.sensors")
