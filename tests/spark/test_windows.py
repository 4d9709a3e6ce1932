"""Windows that Spark's streaming has not, with Spark: results are exact and exactly once, also across restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.catalog.state.query_question import CommittedState, StateWanted
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.pipelines.run import Pipeline, run
from anabranch.spark.queries.committed_state import committed_state
from tests.spark.pipelines import BASE, SECOND, SOURCE, new_store, put, rows
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FIVES = """
CREATE STREAM out.fives WITH (key = device) AS
SELECT device, count_window.start AS opened, count_window.end AS closed, count(*) AS events, sum(celsius) AS total
FROM STREAM iot.sensors
WHERE celsius < 6
GROUP BY device, count_window(5, 2)
HAVING count(*) > 0
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def seconds_since_base(row: dict[str, object], name: str) -> int:
    return (round(row[name].timestamp() * SECOND) - BASE) // SECOND  # type: ignore[attr-defined]


def windows_by_definition(store: ab.Store, size: int, step: int) -> Counter[tuple[str, int, int, int, float]]:
    events: dict[str, list[tuple[int, float]]] = {}
    for row in rows(store, SOURCE):
        if row["celsius"] < 6:
            events.setdefault(row["device"], []).append((seconds_since_base(row, "at"), row["celsius"]))
    windows = (
        (device, own[first : first + size])
        for device, own in events.items()
        for first in range(0, len(own) - size + 1, step)
    )
    return Counter(
        (device, min(times), max(times), size, sum(values))
        for device, window in windows
        for times, values in [tuple(zip(*window, strict=True))]
    )


def forget_last_commit(checkpoint: str) -> None:
    """As if the process had been killed between the publication of the last batch and Spark's note of it."""
    commits = Path(checkpoint) / "commits"
    last = max((each for each in commits.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    for each in (last, commits / f".{last.name}.crc"):
        each.unlink(missing_ok=True)


def test_windows_of_events_are_exact_across_a_batch_that_is_repeated(spark: SparkSession, store: ab.Store) -> None:
    for first in (0, 40):
        put(store, range(first, first + 47))
        pipeline = run(store, FIVES, name="fives", spark=spark, once=True, events_max=40)
        assert pipeline.await_termination(240)
        forget_last_commit(pipeline.checkpoints["out/fives"])
    found = Counter(
        (
            row["device"],
            seconds_since_base(row, "opened"),
            seconds_since_base(row, "closed"),
            row["events"],
            row["total"],
        )
        for row in rows(store, "out/fives")
    )
    assert found == windows_by_definition(store, 5, 2)
    assert sum(found.values()) == 35


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("sum(celsius) AS total", "sum(fahrenheit) AS total", "fahrenheit", 3),
        ("celsius < 6", "fahrenheit < 6", "fahrenheit", 5),
        ("key = device", "key = device, mode = complete", "can't have mode = complete", 2),
        ("GROUP BY device,", "GROUP BY struct(device),", "expected plain values as keys of windows, got struct", 3),
    ],
)
def test_what_is_wrong_with_a_query_is_said_at_its_line(
    spark: SparkSession, store: ab.Store, old: str, new: str, message: str, line: int
) -> None:
    with pytest.raises(InvalidSql, match=message) as refused:
        run(store, FIVES.replace(old, new), name="fives", spark=spark, once=True)
    assert refused.value.line == line
    assert not store.streams.exists("out/fives")


PANES = """
CREATE STREAM out.panes WITH (key = device, time = closed, watermark = '0 seconds') AS
SELECT device, window.end AS closed, pane.timing AS timing, pane.index AS number, pane.retraction AS retraction,
       count(*) AS events, sum(celsius) AS total
FROM STREAM iot.sensors GROUP BY device, window(at, '10 seconds')
"""


def panes(store: ab.Store) -> list[tuple[object, ...]]:
    names = ("device", "timing", "number", "retraction", "events", "total")
    return [(seconds_since_base(row, "closed"), *map(row.get, names)) for row in rows(store, "out/panes")]


def test_windows_have_early_late_and_retracted_results(spark: SparkSession, store: ab.Store) -> None:
    sql = PANES + "EMIT EARLY EVERY 2 EVENTS, LATE WITHIN '10 seconds', RETRACTING"
    # One commit a micro-batch, which begins with the watermark of those before.
    for seconds in ([0, 3, 1], [6, 10, 11], [4, 12, 14], [25, 26, 27], [5, 28, 29]):
        put(store, seconds)
    pipeline = run(store, sql, name="panes", spark=spark, once=True, events_max=3)
    assert pipeline.await_termination(240)
    expected = [
        # The first batch: two events of d0, at 0 and 3, are an early result; one of d1 is none.
        (10, "d0", "early", 0, False, 2, 3.0),
        # In the third the watermark is 11. The window closes with the event at 6, then that at 4 is late.
        (10, "d0", "early", 0, True, 2, 3.0),
        (10, "d0", "on_time", 1, False, 3, 9.0),
        (10, "d1", "on_time", 0, False, 1, 1.0),
        (10, "d1", "on_time", 0, True, 1, 1.0),
        (10, "d1", "late", 1, False, 2, 5.0),
        (20, "d2", "early", 0, False, 2, 4.0),
        # In the last it is 27: the window at 10 is forgotten, so the event at 5 is late for good.
        (20, "d0", "on_time", 0, False, 1, 5.0),
        (20, "d1", "on_time", 0, False, 1, 3.0),
        (20, "d2", "early", 0, True, 2, 4.0),
        (20, "d2", "on_time", 1, False, 2, 4.0),
        (30, "d1", "early", 0, False, 2, 4.0),
        (30, "d2", "early", 0, False, 2, 6.0),
    ]
    assert sorted(panes(store), key=str) == sorted(expected, key=str)
    late = rows(store, "out/panes_late")
    assert [(seconds_since_base(row, "at"), seconds_since_base(row, "_watermark")) for row in late] == [(5, 17)]

    forget_last_commit(pipeline.checkpoints["out/panes"])
    assert run(store, sql, name="panes", spark=spark, once=True, flush=True).await_termination(240)
    expected += [
        (30, "d0", "on_time", 0, False, 1, 6.0),
        (30, "d1", "early", 0, True, 2, 4.0),
        (30, "d1", "on_time", 1, False, 2, 4.0),
        (30, "d2", "early", 0, True, 2, 6.0),
        (30, "d2", "on_time", 1, False, 2, 6.0),
    ]
    assert sorted(panes(store), key=str) == sorted(expected, key=str)
    assert len(rows(store, "out/panes_late")) == 1


SESSIONS_AND_THREES = """
CREATE STREAM out.sessions WITH (key = device, time = closed, watermark = '0 seconds') AS
SELECT device, session_window.start AS opened, session_window.end AS closed, pane.timing AS timing,
       pane.retraction AS retraction, count(*) AS events, sum(celsius) AS total
FROM STREAM iot.sensors GROUP BY device, session_window(at, '4 seconds')
EMIT EARLY EVERY 2 EVENTS, LATE WITHIN '10 seconds', RETRACTING;

CREATE STREAM out.threes WITH (key = device, time = closed) AS
SELECT device, count_window.first AS first, count_window.end AS closed, pane.timing AS timing, pane.index AS number,
       count(*) AS events, sum(celsius) AS total
FROM STREAM iot.sensors GROUP BY device, count_window(3)
EMIT EARLY EVERY 2 EVENTS;
"""


def test_sessions_and_windows_of_events_have_early_and_late_results(spark: SparkSession, store: ab.Store) -> None:
    # One commit a micro-batch, which begins with the watermark of those before.
    for seconds in ([0, 3], [9, 12], [6, 13], [30, 31], [1, 19], [60, 63]):
        put(store, seconds)
    pipeline = run(store, SESSIONS_AND_THREES, name="both", spark=spark, once=True, events_max=2, flush=True)
    assert pipeline.await_termination(240)
    net: Counter[tuple[object, ...]] = Counter()
    timings: Counter[tuple[str, bool]] = Counter()
    for row in rows(store, "out/sessions"):
        bounds = [seconds_since_base(row, name) for name in ("opened", "closed")]
        net[(row["device"], *bounds, row["events"], row["total"])] += -1 if row["retraction"] else 1
        timings[row["timing"], row["retraction"]] += 1
    events = [(row["device"], seconds_since_base(row, "at"), row["celsius"]) for row in rows(store, SOURCE)]
    in_time = pa.table(list(zip(*[each for each in events if each[1] != 1], strict=True)), ["device", "s", "celsius"])
    assert +net == Counter(sessions_of_duckdb(in_time, 4))
    assert not -net
    # When the event at 6 comes, the watermark is 12. It joins the session from 0 to 7, which has just closed, with that from 9
    # to 16, which is open. When that at 19 comes it is 31, so a session of its own is late at once.
    expected = {
        ("early", False): 3,
        ("early", True): 3,
        ("on_time", False): 6,
        ("on_time", True): 1,
        ("late", False): 1,
    }
    assert timings == expected
    assert [seconds_since_base(row, "at") for row in rows(store, "out/sessions_late")] == [1]

    threes = [
        (row["device"], row["timing"], row["number"], row["events"], row["total"]) for row in rows(store, "out/threes")
    ]
    assert sorted(threes) == [
        ("d0", "early", 0, 2, 3.0),
        ("d0", "early", 0, 2, 4.0),
        ("d0", "early", 0, 2, 11.0),
        ("d0", "on_time", 1, 3, 5.0),
        ("d0", "on_time", 1, 3, 13.0),
        ("d1", "early", 0, 2, 9.0),
        ("d1", "on_time", 1, 3, 10.0),
    ]
    assert len({row["first"] for row in rows(store, "out/threes")}) == 4


KEPT = """
CREATE STREAM out.counts WITH (key = device, time = closed, watermark = '0 seconds') AS
SELECT window.end AS closed, device, count(*) AS events, avg(celsius) AS celsius, sum(celsius) AS total
FROM STREAM iot.sensors GROUP BY window(at, '10 seconds'), device;

CREATE STREAM out.threes WITH (key = device) AS
SELECT device, sum(celsius) AS total FROM STREAM iot.sensors GROUP BY device, count_window(3);

CREATE STREAM out.pairs WITH (key = device) AS
SELECT a.device, a.celsius AS first, b.celsius AS second FROM STREAM iot.sensors a JOIN STREAM iot.sensors b
ON a.device = b.device AND b.at = a.at + INTERVAL 3 SECONDS
"""


def test_what_spark_keeps_for_a_statement_is_read_by_key(spark: SparkSession, store: ab.Store) -> None:
    for seconds in (range(12), range(12, 25)):
        put(store, seconds)
    assert run(store, KEPT, name="kept", spark=spark, once=True, events_max=13).await_termination(240)

    def kept(target: str, key: str | None = "d1", batch: int | None = None, rows_max: int = 100) -> CommittedState:
        return committed_state(store, spark, "kept", StateWanted(target, key, batch, rows_max))

    # The window from 20 is open: it has the events of d1 at 22, which is 1 degree.
    (window,) = [row for row in kept("out/counts").rows if row.key["window"]["start"].endswith("22:13:40.000000Z")]
    assert (window.operator, window.part, window.key["device"]) == ("stateStoreSave", "state", "d1")
    assert window.value == {"count": 1, "sum": 1.0, "count_2": 1, "sum_2": 1.0}
    assert {row.key["device"] for row in kept("out/counts", None).rows} == {"d0", "d1", "d2"}
    assert len(kept("out/counts", None, rows_max=2).rows) == 2
    assert kept("out/counts", None, rows_max=2).more
    # After the first micro-batch: of d1 the window from 0 has the events at 1, 4 and 7, that from 10 the one at 10.
    assert sorted(row.value["count"] for row in kept("out/counts", batch=0).rows) == [1, 3]

    # d1 has 8 events. The last two are no window yet.
    threes = kept("out/threes").rows
    assert [(row.part, row.key, row.value["celsius"]) for row in threes] == [
        ("open.anabranch_rows", {"key_0": "d1"}, float(at % 7)) for at in (19, 22)
    ]
    pairs = kept("out/pairs")
    assert {row.part for row in pairs.rows} == {"left", "right"}
    assert kept("out/pairs", "nobody").rows == ()
    with pytest.raises(InvalidArgument, match=f"micro-batches 0 to {pairs.batch} of out/pairs, not 99"):
        kept("out/pairs", batch=99)


def sessions_of_duckdb(events: pa.Table, gap: int) -> list[tuple[object, ...]]:
    """As (device, start, end, events, total), computed at once."""
    connection = duckdb.connect()
    connection.register("events", events)
    return connection.execute(
        f"""
        SELECT device, min(s), max(s) + {gap}, count(*), sum(celsius) FROM (
            SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY device ORDER BY s) AS session FROM (
                SELECT *, coalesce(s - lag(s) OVER (PARTITION BY device ORDER BY s) > {gap}, true) AS begins
                FROM events
            )
        ) GROUP BY device, session
        """
    ).fetchall()


@pytest.mark.slow
def test_a_window_of_events_has_an_early_result_also_without_event_time(spark: SparkSession, store: ab.Store) -> None:
    store.streams.create("iot/plain", schema=pa.schema([("n", pa.int64())]))
    with store.writer("iot/plain") as writer:
        writer.write_batch(pa.table({"n": [1, 2, 3]}))
    sql = """CREATE STREAM out.tens AS SELECT pane.timing AS timing, sum(n) AS total FROM STREAM iot.plain
    GROUP BY count_window(10) EMIT EARLY EVERY '1 second', DISCARDING"""

    def found() -> list[object]:
        return [tuple(row.values()) for row in rows(store, "out/tens")] if store.streams.exists("out/tens") else []

    with run(store, sql, name="tens", spark=spark) as pipeline:
        until(lambda: pipeline.active and found() == [("early", 6)])
        with store.writer("iot/plain") as writer:
            writer.write_batch(pa.table({"n": list(range(4, 11))}))
        until(lambda: found() == [("early", 6), ("on_time", 49)])


@pytest.mark.slow
def test_an_early_result_comes_also_when_nothing_else_does(spark: SparkSession, store: ab.Store) -> None:
    put(store, [0])
    sql = PANES + "EMIT EARLY EVERY '1 second', DISCARDING"
    with run(store, sql, name="panes", spark=spark) as pipeline:
        until(lambda: pipeline.active and store.streams.exists("out/panes") and len(panes(store)) == 1)
        put(store, [3, 6])
        until(lambda: len(panes(store)) == 2)
        assert panes(store) == [(10, "d0", "early", 0, False, 1, 0.0), (10, "d0", "early", 1, False, 2, 9.0)]


def test_a_retraction_comes_before_the_result_that_takes_its_place(spark: SparkSession, store: ab.Store) -> None:
    put(store, [second for second in range(120) for _ in range(4)])
    sql = """CREATE STREAM out.panes WITH (key = device) AS
    SELECT device, window.end AS closed, pane.index AS number, pane.retraction AS retracted, count(*) AS events
    FROM STREAM iot.sensors GROUP BY device, window(at, '40 seconds') EMIT EARLY EVERY 1 EVENTS, RETRACTING"""
    pipeline = run(store, sql, name="panes", spark=spark, once=True, flush=True, events_max=60)
    assert pipeline.await_termination(240)
    found: dict[tuple[str, object], list[tuple[int, bool]]] = {}
    for row in rows(store, "out/panes"):
        found.setdefault((row["device"], row["closed"]), []).append((row["number"], row["retracted"]))
    assert len(found) == 9
    for order in found.values():
        numbers = range(max(number for number, _ in order) + 1)
        assert order == [(number, taken) for number in numbers for taken in (False, True)][:-1]


@pytest.mark.parametrize("timed", [True, False])
def test_windows_over_append_times_are_exact(spark: SparkSession, store: ab.Store, timed: bool) -> None:
    source = SOURCE
    if not timed:
        source = "iot/plain"
        store.streams.create(
            source, schema=pa.schema([("device", pa.string()), ("celsius", pa.float64())]), key="device"
        )
    sql = f"""CREATE STREAM out.rates WITH (watermark = '0 seconds') AS
    SELECT device, window.start AS opened, window.end AS closed, count(*) AS events
    FROM STREAM {source.replace("/", ".")} GROUP BY device, window(_appended, '1 second')"""
    for start in (500, 0):  # by event time, the second ones would be late
        for first in range(start, start + 40, 10):
            devices = [f"d{each % 3}" for each in range(first, first + 10)]
            if timed:
                put(store, range(first, first + 10))
            else:
                store.write(source, pa.table({"device": devices, "celsius": [1.0] * 10}))
        assert run(store, sql, name="rates", spark=spark, once=True, flush=True).await_termination(240)
    with store.reader(source) as reader:
        whole = reader.to_arrow()
    assert not rows(store, "out/rates_late")
    found = Counter((row["device"], row["opened"], row["closed"], row["events"]) for row in rows(store, "out/rates"))
    expected = (
        duckdb.from_arrow(whole)
        .aggregate("device, time_bucket(INTERVAL 1 second, _appended) AS opened, count(*) AS events")
        .project("device, opened, opened + INTERVAL 1 second, events")
        .fetchall()
    )
    assert found == Counter(expected)
    assert sum(row[3] for row in found) == 80


@pytest.mark.slow
def test_windows_over_append_times_close_without_new_events(spark: SparkSession, store: ab.Store) -> None:
    put(store, [0, 1, 2])
    query = """SELECT window.end AS closed, count(*) AS events, {}
    FROM STREAM iot.sensors GROUP BY window(_appended, '2 seconds')"""
    sql = "CREATE STREAM out.{} WITH (watermark = '1 second') AS "
    sql = (
        sql.format("counts") + query.format("max(device) AS device") + ";\n"
        + sql.format("panes") + query.format("pane.timing AS timing") + " EMIT EARLY EVERY 2 EVENTS;"
    )  # fmt: skip
    with run(store, sql, name="counts", spark=spark) as pipeline:
        for events in (3, 5):
            for result in ("out/counts", "out/panes"):
                until(partial(closed, store, pipeline, result, events))
            put(store, [100, 101])


def closed(store: ab.Store, pipeline: Pipeline, result: str, events: int) -> bool:
    """Whether the windows that are closed had so many events."""
    if not pipeline.active or not store.streams.exists(result):
        return False
    return sum(row["events"] for row in rows(store, result) if row.get("timing", "on_time") == "on_time") == events


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("iot.sensors GROUP BY window(_appended, '1 second'), window(at, '1 second')", "require a statement each"),
        ("iot.sensors a JOIN STREAM iot.other b ON a.device = b.device GROUP BY window(a._appended, '1 second')", "of one stream"),
    ],
)  # fmt: skip
def test_windows_over_append_times_have_a_statement_of_their_own(store: ab.Store, query: str, message: str) -> None:
    with pytest.raises(InvalidSql, match=message):
        plan(f"CREATE STREAM out.x AS SELECT count(*) AS events FROM STREAM {query}")
