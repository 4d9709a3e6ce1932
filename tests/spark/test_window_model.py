"""Windows in pipelines over random events of which many are late, held to a model that takes one micro-batch after the other
with the watermark that Spark recorded, and to DuckDB over all events."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.model.columns import TIME_TYPE
from anabranch.model.cut import StreamCut
from anabranch.spark.pipelines.run import Pipeline, run
from tests.spark.pipelines import BASE, SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string()), ("at", TIME_TYPE)])
_SPREAD_S: Final = 60
_DISORDER_S: Final = 40  # more than the watermark's delay, so many events are late
_GAP_S: Final = 4
_SIZE: Final = 5
_STEP: Final = 2

_Row = dict[str, Any]
_Window = tuple[int, int, str | None, tuple[int, ...]]
"""A window's start and end in seconds since BASE, its key, and the numbers of its events."""


@dataclass(frozen=True)
class _Batch:
    """The events of a micro-batch. Windows that end at or before `late_s` take none of them; those that end at or before
    `close_s` are closed after it. In seconds since BASE."""

    events: list[_Row]
    late_s: float
    close_s: float


@dataclass(frozen=True)
class _Times:
    """Windows of time, of so many seconds, one every `slide`, from `start` on."""

    size: int
    slide: int
    start: int = 0

    @property
    def sql(self) -> str:
        return f"window(at, '{self.size} seconds', '{self.slide} seconds', '{self.start} seconds')"

    @property
    def duckdb(self) -> str:
        """The starts of the windows that hold the second s, and an event of them."""
        return f"""SELECT start, start + {self.size} AS stop, k, n FROM (
            SELECT unnest([s - (s - {self.start} + {self.slide * 10}) % {self.slide} - {self.slide} * i
                for i in range({-(-self.size // self.slide)})]) AS start, *
            FROM events) WHERE start + {self.size} > s"""

    def ends(self, at: int) -> list[int]:
        starts = range(at - self.size + 1, at + 1)
        return [each + self.size for each in starts if (each - self.start) % self.slide == 0]

    def windows(self, batches: Sequence[_Batch]) -> Iterator[_Window]:
        """The windows that Spark closes, with the events that were in time for them."""
        opened: dict[tuple[int, str | None], list[int]] = {}
        for batch in batches:
            for row in batch.events:
                for end in self.ends(row["at"]):
                    if end > batch.late_s:
                        opened.setdefault((end, row["k"]), []).append(row["n"])
            for end, key in [each for each in opened if each[0] <= batch.close_s]:
                yield end - self.size, end, key, tuple(sorted(opened.pop((end, key))))


class _Sessions:
    """Sessions that end a gap after their last event."""

    sql: Final = f"session_window(at, '{_GAP_S} seconds')"
    duckdb: Final = f"""SELECT min(s) OVER w AS start, max(s) OVER w + {_GAP_S} AS stop, k, n FROM (
        SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY k ORDER BY s, n) AS session FROM (
            SELECT *, coalesce(s - lag(s) OVER (PARTITION BY k ORDER BY s, n) > {_GAP_S}, true) AS begins FROM events))
        WINDOW w AS (PARTITION BY k, session)"""

    def ends(self, at: int) -> list[int]:
        return [at + _GAP_S]

    def windows(self, batches: Sequence[_Batch]) -> Iterator[_Window]:
        """The sessions that Spark closes. One that is closed takes no further events: these begin another."""
        opened: list[_Window] = []
        for batch in batches:
            for row in batch.events:
                start, end, numbers = row["at"], row["at"] + _GAP_S, (row["n"],)
                if end <= batch.late_s:
                    continue
                for each in [each for each in opened if each[2] == row["k"]]:
                    if each[0] <= end and start <= each[1]:
                        opened.remove(each)
                        start, end, numbers = min(start, each[0]), max(end, each[1]), (*numbers, *each[3])
                opened.append((start, end, row["k"], tuple(sorted(numbers))))
            closed = [each for each in opened if each[1] <= batch.close_s]
            opened = [each for each in opened if each not in closed]
            yield from closed


_WINDOWS: Final[dict[str, _Times | _Sessions]] = {
    "tumbling": _Times(10, 10),
    "sliding": _Times(10, 4, 3),
    "session": _Sessions(),
}
_PANES: Final = {"retracting": "tumbling", "accumulating": "sliding", "discarding": "tumbling", "sessions": "session"}
_EMIT: Final = "EMIT EARLY EVERY 2 EVENTS, LATE WITHIN '1000 seconds', {mode}"
_NUMBERS: Final = "concat_ws(',', sort_array(collect_list(n))) AS numbers"


def _drawn(seed: int) -> list[tuple[str | None, int, int]]:
    """Events as their key, time and delay. Hypothesis begins with the simplest lists, whose events are all equal."""
    chance = random.Random(seed)
    return [
        (chance.choice(["a", "b", "c", None]), chance.randint(0, _SPREAD_S), chance.randint(0, _DISORDER_S))
        for _ in range(chance.randint(50, 90))
    ]


_events = st.integers(0, 1 << 32).map(_drawn)
_runs = count()


def _statement(name: str, window: str, rest: str = "", more: str = "") -> str:
    function = window.split("(", maxsplit=1)[0]
    return f"""CREATE STREAM out.{name} WITH (watermark = '0 seconds') AS
        SELECT {function}.start AS opened, {function}.end AS closed, k, {_NUMBERS}{more}
        FROM STREAM iot.events GROUP BY {window}, k {rest}"""


@settings(
    max_examples=2,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # each example starts Spark's queries: shrinking one takes too long
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(drawn=_events)
def test_windows_of_random_events_are_those_of_the_model_and_of_duckdb(
    spark: SparkSession, tmp_path: Path, drawn: list[tuple[str | None, int, int]]
) -> None:
    ordered = sorted(drawn, key=lambda each: each[1] + each[2])
    panes = ", pane.index AS number, pane.retraction AS retracted"
    statements = [_statement(name, window.sql) for name, window in _WINDOWS.items()]
    statements += [
        _statement(name, _WINDOWS[of].sql, _EMIT.format(mode="RETRACTING" if name == "sessions" else name), panes)
        for name, of in _PANES.items()
    ]
    statements.append(_statement("counted", f"count_window({_SIZE}, {_STEP})"))
    statements.append(  # without a key each segment has windows of its own
        f"""CREATE STREAM out.segments AS SELECT count_window.start AS opened, count_window.end AS closed,
        CAST(NULL AS STRING) AS k, {_NUMBERS} FROM STREAM iot.events GROUP BY count_window({_SIZE}, {_STEP})"""
    )
    statements.append(_statement("appended", "window(_appended, '1 second')"))
    with ab.connect(tmp_path / f"river-{next(_runs)}", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/events", schema=_SCHEMA, key="k", time="at", scaling=2)
        with store.writer("iot/events") as writer:
            for begin in range(0, len(ordered), 10):
                rows = [
                    {"n": begin + number, "k": key, "at": BASE + at * SECOND}
                    for number, (key, at, _) in enumerate(ordered[begin : begin + 10])
                ]
                writer.write_batch(pa.Table.from_pylist(rows, _SCHEMA), atomic=True)
        events = _stored(store)
        with run(
            store, ";\n".join(statements), name="windows", spark=spark, once=True, flush=True, events_max=15
        ) as pipeline:
            pipeline.await_termination()
        for name, window in _WINDOWS.items():
            batches = _batches(events, pipeline, f"out/{name}")
            assert Counter(map(_window, _rows(store, name))) == Counter(window.windows(batches)), name
            late = Counter(
                (row["n"], batch.late_s)
                for batch in batches
                for row in batch.events
                if min(window.ends(row["at"])) <= batch.late_s
            )
            found = _rows(store, f"{name}_late")
            assert Counter((row["n"], _seconds(row["_watermark"])) for row in found) == late, name
            if isinstance(window, _Times):
                assert _with_late(store, name, window) == _by_duckdb(events, window), name
        assert sum(map(len, (_rows(store, f"{name}_late") for name in _WINDOWS))), "some events are late"
        for name, of in _PANES.items():
            assert _whole(name, _rows(store, name)) == _by_duckdb(events, _WINDOWS[of]), name
        for name, group in (("counted", "k"), ("segments", "_segment")):
            came = [row for batch in _batches(events, pipeline, f"out/{name}") for row in batch.events]
            expected = Counter(_counted(came, group))
            assert expected == _counted_by_duckdb(came, group)
            assert Counter(map(_window, _rows(store, name))) == expected, name
        assert Counter(
            (row["opened"], row["closed"], row["k"], row["numbers"]) for row in _rows(store, "appended")
        ) == Counter(_appended(store))


def _stored(store: ab.Store) -> list[_Row]:
    """The events in the order of their segments, with their times in seconds since BASE."""
    with store.reader("iot/events") as reader:
        rows = pa.Table.from_batches(list(reader.batches()), schema=reader.schema).to_pylist()
    events = [{**row, "at": int(_seconds(row["at"]))} for row in rows]
    return sorted(events, key=lambda row: (row["_segment"], row["_offset"]))


def _seconds(time: Any) -> float:
    return float(time.timestamp() - BASE // SECOND)


def _rows(store: ab.Store, name: str) -> list[_Row]:
    if not store.streams.exists(f"out/{name}"):
        return []
    with store.reader(f"out/{name}") as reader:
        return [event.body for event in reader]


def _window(row: _Row) -> _Window:
    return int(_seconds(row["opened"])), int(_seconds(row["closed"])), row["k"], _numbers(row)


def _numbers(row: _Row) -> tuple[int, ...]:
    return tuple(map(int, row["numbers"].split(",")))


def _batches(events: Sequence[_Row], pipeline: Pipeline, target: str) -> list[_Batch]:
    """The micro-batches of a query, as its checkpoint has them."""
    folder = Path(pipeline.checkpoints[target]) / "offsets"
    files = sorted((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    found, late_s, before = [], -float("inf"), dict[int, int]()
    for each in files:
        _, about, offset = each.read_text().splitlines()
        close_s = json.loads(about)["batchWatermarkMs"] / 1_000 - BASE // SECOND
        cut = {segment.packed: end for segment, end in StreamCut.parse(json.loads(offset)["cut"])}
        own = [row for row in events if before.get(row["_segment"], 0) <= row["_offset"] < cut[row["_segment"]]]
        found.append(_Batch(own, late_s, close_s))
        late_s, before = close_s, cut
    assert sum(len(each.events) for each in found) == len(events)
    return found


def _with_late(store: ab.Store, name: str, window: _Times) -> Counter[_Window]:
    """The results, and what the stream of late events says of them: all events of each window."""
    whole: dict[tuple[int, str | None], list[int]] = {}
    for _, end, key, numbers in map(_window, _rows(store, name)):
        whole.setdefault((end, key), []).extend(numbers)
    for row in _rows(store, f"{name}_late"):
        for end in window.ends(int(_seconds(row["at"]))):
            if end <= _seconds(row["_watermark"]):
                whole.setdefault((end, row["k"]), []).append(row["n"])
    return Counter((end - window.size, end, key, tuple(sorted(found))) for (end, key), found in whole.items())


def _whole(name: str, rows: Sequence[_Row]) -> Counter[_Window]:
    """What the panes of each window come to in the end."""
    if name in ("retracting", "sessions"):
        net: Counter[_Window] = Counter()
        for row in rows:
            net[_window(row)] += -1 if row["retracted"] else 1
        assert not -net
        return +net
    panes: dict[Any, list[tuple[int, tuple[int, ...]]]] = {}
    for row in rows:
        assert not row["retracted"]
        start, end, key, numbers = _window(row)
        panes.setdefault((start, end, key), []).append((row["number"], numbers))
    for found in panes.values():
        found.sort()
        assert [number for number, _ in found] == list(range(len(found)))
    if name == "accumulating":
        return Counter((*window, found[-1][1]) for window, found in panes.items())
    return Counter(
        (*window, tuple(sorted(number for _, numbers in found for number in numbers)))
        for window, found in panes.items()
    )


def _by_duckdb(events: Sequence[_Row], window: _Times | _Sessions) -> Counter[_Window]:
    """All windows, with all their events."""
    columns: dict[str, Any] = {name: [row[name] for row in events] for name in ("n", "k")}
    with duckdb.connect() as database:
        database.register("events", pa.table({**columns, "s": [row["at"] for row in events]}))
        found = database.execute(
            f"SELECT start, stop, k, list_sort(list(n)) FROM ({window.duckdb}) GROUP BY ALL"
        ).fetchall()
    return Counter((start, stop, key, tuple(numbers)) for start, stop, key, numbers in found)


def _counted(events: Sequence[_Row], group: str) -> Iterator[_Window]:
    """Windows of a number of events, which come in this order."""
    groups: dict[Any, list[_Row]] = {}
    for row in events:
        groups.setdefault(row[group], []).append(row)
    for own in groups.values():
        for first in range(0, len(own) - _SIZE + 1, _STEP):
            window = own[first : first + _SIZE]
            times = [row["at"] for row in window]
            key = window[0]["k"] if group == "k" else None
            yield min(times), max(times), key, tuple(sorted(row["n"] for row in window))


def _counted_by_duckdb(events: Sequence[_Row], group: str) -> Counter[_Window]:
    groups = [None if row[group] is None else str(row[group]) for row in events]
    columns: dict[str, Any] = {"g": groups, "n": [row["n"] for row in events], "s": [row["at"] for row in events]}
    with duckdb.connect() as database:
        database.register("events", pa.table({**columns, "place": range(len(events))}))
        found = database.execute(f"""
            WITH numbered AS (SELECT *, row_number() OVER (PARTITION BY g ORDER BY place) - 1 AS number FROM events),
            windows AS (SELECT g, unnest(range(0, count(*) - {_SIZE} + 1, {_STEP})) AS first FROM events GROUP BY g)
            SELECT min(s), max(s), windows.g, list_sort(list(n)) FROM numbered JOIN windows
                ON numbered.g IS NOT DISTINCT FROM windows.g AND number >= first AND number < first + {_SIZE}
            GROUP BY windows.g, first""").fetchall()
    return Counter((start, end, key if group == "k" else None, tuple(numbers)) for start, end, key, numbers in found)


def _appended(store: ab.Store) -> list[tuple[Any, ...]]:
    with store.reader("iot/events") as reader:
        events = pa.Table.from_batches(list(reader.batches()), schema=reader.schema)
    return (
        duckdb.from_arrow(events)
        .aggregate(
            "time_bucket(INTERVAL 1 second, _appended) AS opened, k, "
            "array_to_string(list(n ORDER BY n), ',') AS numbers"
        )
        .project("opened, opened + INTERVAL 1 second, k, numbers")
        .fetchall()
    )
