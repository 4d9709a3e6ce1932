"""Pipelines in this process: what their results hold, where they go on, and what they refuse."""

from __future__ import annotations

import io
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.console import Console

import anabranch as ab
from anabranch.cli.demo.proof import Claim, prove
from anabranch.errors import AnabranchError, InvalidArgument, InvalidSql, PipelineFailed, PipelineRunning
from anabranch.model.columns import TIME_TYPE
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.pipelines import admin as pipeline_admin
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.lateness import late_warning
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.pipelines.prepare import RunOptions, prepare
from anabranch.spark.pipelines.run import Pipeline, run
from anabranch.spark.pipelines.screen import progress_table, watch
from anabranch.spark.source.checkpoint import committed
from tests.spark.pipelines import BASE, COUNTS, SECOND, SOURCE, counted, expected, new_store, put, rows
from tests.waiting import PATIENCE_S, until, until_ended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def finished(pipeline: Pipeline) -> Pipeline:
    assert pipeline.await_termination(240), pipeline.progress()
    return pipeline


@pytest.mark.slow
def test_results_and_late_events_of_disordered_input_make_up_every_closed_window(
    spark: SparkSession, store: ab.Store
) -> None:
    seed = 7
    chance = random.Random(seed)
    times = [n / 4 - (chance.expovariate(1 / 40) if chance.random() < 0.3 else 0) for n in range(500)]
    for start in range(0, 500, 100):
        put(store, times[start : start + 100])
    sql = """
        CREATE STREAM out.tumbling WITH (watermark = '2 seconds') AS
        SELECT window.start AS opened, window.end AS closed, device, count(*) AS events
        FROM STREAM iot.sensors GROUP BY window(at, '10 seconds'), device;
        CREATE STREAM out.sliding WITH (watermark = '2 seconds') AS
        SELECT window.start AS opened, window.end AS closed, count(*) AS events
        FROM STREAM iot.sensors GROUP BY window(at, '20 seconds', '5 seconds')
    """
    pipeline = finished(run(store, sql, name="late", spark=spark, once=True, events_max=100))
    for name, size, slide in (("tumbling", 10, 10), ("sliding", 20, 5)):
        claim = Claim(SOURCE, "at", f"out/{name}", f"out/{name}_late", size * SECOND, slide * SECOND)
        place = checkpoint_folder(pipeline.checkpoints[claim.target], store.runtime)
        watermark_us, cuts = committed(store.catalog, place)
        proof = prove(store, claim, watermark_us=watermark_us, read_to=cuts[store.streams.get(SOURCE).id])
        assert proof.ok, (seed, [window for window in proof.windows if not window.ok])
        assert len(proof.windows) > 10
        assert proof.late > 3
        assert proof.read == 500
    late = rows(store, "out/tumbling_late")
    assert set(late[0]) == {"device", "at", "celsius", "_watermark"}
    progress = {each.target: each for each in pipeline.last_progress}
    assert progress["out/tumbling"].late == len(late)
    assert progress["out/tumbling"].lag == 0
    assert progress["out/tumbling"].state_rows > 0
    (operator,) = progress["out/tumbling"].operators
    assert operator["operator"] == "stateStoreSave"
    assert operator["rows"] == progress["out/tumbling"].state_rows
    assert progress["out/tumbling"].lag_s == 0.0
    segments = progress["out/tumbling"].segments
    assert [(each["stream"], each["segment"], each["lag"]) for each in segments] == [
        (SOURCE, "0.0", 0),
        (SOURCE, "0.1", 0),
    ]
    foremost = BASE + round(max(times) * SECOND)
    assert max(each["event_time_us"] for each in segments) == foremost
    assert all(each["skew_s"] == (foremost - each["event_time_us"]) / 1e6 for each in segments)
    assert set(progress["out/tumbling"].stages_ms) >= {"addBatch", "latestOffset"}


@pytest.mark.slow
def test_a_limit_smaller_than_a_commit_makes_nothing_late(spark: SparkSession, store: ab.Store) -> None:
    store.streams.scale(SOURCE, 4)
    # In order, as one commit; most of its events have one key.
    devices = ["often" if n % 10 else f"rare{n // 150}" for n in range(2000)]
    times = pa.array([BASE + n * SECOND // 2 for n in range(2000)], TIME_TYPE)
    with store.writer(SOURCE) as writer:
        table = pa.table({"device": devices, "at": times, "celsius": [float(n % 7) for n in range(2000)]})
        writer.write_batch(table, atomic=True)
    sql = COUNTS.replace("5 seconds", "0 seconds")
    pipeline = finished(run(store, sql, name="p", spark=spark, once=True, events_max=300))
    assert rows(store, "out/counts_late") == []
    assert counted(store) == expected(store, until=990)
    assert pipeline.last_progress[0].batch >= 6


@pytest.mark.slow
@pytest.mark.parametrize("keeps_late", [True, False])
def test_a_run_that_loses_many_events_to_lateness_says_so(
    spark: SparkSession, store: ab.Store, caplog: pytest.LogCaptureFixture, keeps_late: bool
) -> None:
    sql = COUNTS.replace("'5 seconds'", f"'0 seconds', late = {str(keeps_late).lower()}")
    put(store, range(100))
    finished(run(store, sql, name="p", spark=spark, once=True))
    assert caplog.records == []
    put(store, range(60))  # all of them late, as the watermark is at 99 seconds
    screen = io.StringIO()
    with run(store, sql, name="p", spark=spark, once=True) as pipeline:
        watch(pipeline, out=screen, quiet=True)
    (told,) = pipeline.last_progress
    assert (told.run_read, told.keeps_late) == (60, keeps_late)
    assert told.read == 160
    # Spark counts what it drops itself after adding up: by window and device.
    assert told.run_late == (60 if keeps_late else 18)
    assert told.warning is not None
    assert told.warning in screen.getvalue()
    (logged,) = [record for record in caplog.records if record.name == "anabranch.spark"]
    assert logged.levelname == "WARNING"
    assert told.warning in logged.getMessage()
    (kept,) = pipeline_admin.find(store, "p").progress
    assert late_warning(kept) == told.warning
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as table:
        console.print(progress_table([told], title="p", width=200))
    assert "warning: out/counts:" in table.get()
    # A run is judged by what it read itself.
    put(store, range(100, 200))
    (after,) = finished(run(store, sql, name="p", spark=spark, once=True)).last_progress
    assert (after.run_read, after.run_late, after.warning) == (100, 0, None)


def test_statements_of_a_file_feed_each_other_in_one_run_and_over_several(spark: SparkSession, store: ab.Store) -> None:
    sql = f"""
        CREATE STREAM out.totals AS
        SELECT window.start AS opened, window.end AS closed, sum(events) AS events
        FROM STREAM out.counts GROUP BY window(closed, '30 seconds');
        {COUNTS}
    """
    put(store, range(100))
    finished(run(store, sql, name="chain", spark=spark, once=True))
    put(store, range(100, 200))
    finished(run(store, sql, name="chain", spark=spark, once=True))
    assert counted(store) == expected(store, until=194)
    # Each count lies in the total's window that holds its end; the epoch's half minutes begin at BASE - 20.
    wanted: Counter[int] = Counter()
    for start, _, events, _ in expected(store, until=190):
        wanted[(start + 10 + 20) // 30 * 30 - 20] += events
    totals = {round(row["opened"].timestamp()) - BASE // SECOND: row["events"] for row in rows(store, "out/totals")}
    assert totals == {start: events for start, events in wanted.items() if start + 30 <= 190}
    assert store.streams.get("out/totals").schema.time == "closed"
    assert store.streams.get("out/counts").schema.key == "device"


def test_streams_are_joined_with_streams_and_with_tables(spark: SparkSession, store: ab.Store) -> None:
    schema = pa.schema([("device", pa.string()), ("noticed", TIME_TYPE), ("alarm", pa.string())])
    store.streams.create("iot/alarms", schema=schema, key="device", time="noticed")
    store.streams.create("iot/devices", schema=pa.schema([("device", pa.string()), ("room", pa.string())]))
    put(store, range(60))
    with store.writer("iot/alarms") as writer:
        for second in (3, 4, 30):
            at = datetime.fromtimestamp(BASE / SECOND + second + 1, UTC)
            writer.write({"device": f"d{second % 3}", "noticed": at, "alarm": f"a{second}"})
    with store.writer("iot/devices") as writer:
        writer.write({"device": "d0", "room": "hall"})
        writer.write({"device": "d1", "room": "yard"})
    sql = """
        CREATE STREAM out.alarmed AS
        SELECT s.device, s.at, a.noticed, a.alarm, s.celsius
        FROM STREAM iot.sensors s JOIN STREAM iot.alarms a
          ON s.device = a.device AND a.noticed BETWEEN s.at AND s.at + INTERVAL 1 SECOND;
        CREATE STREAM out.rooms AS
        SELECT d.room, s.* FROM STREAM iot.sensors s JOIN iot.devices d ON s.device = d.device WHERE s.celsius > 5
    """
    finished(run(store, sql, name="joins", spark=spark, once=True))
    joined = {(row["alarm"], round(row["at"].timestamp()) - BASE // SECOND) for row in rows(store, "out/alarmed")}
    assert joined == {("a3", 3), ("a4", 4), ("a30", 30)}
    rooms = [(row["room"], row["device"]) for row in rows(store, "out/rooms")]
    assert set(rooms) == {("hall", "d0"), ("yard", "d1")}
    assert len(rooms) == sum(row["device"] != "d2" and row["celsius"] > 5 for row in rows(store, SOURCE))
    # What the store adds to a row is not carried on, and a stateless statement drops nothing, so keeps no late events.
    assert store.streams.get("out/rooms").schema.columns.names == ["room", "device", "at", "celsius"]
    assert not store.streams.exists("out/rooms_late")
    assert store.streams.exists("out/alarmed_late")


def test_a_run_goes_on_and_a_restart_corrects(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(50))
    finished(run(store, COUNTS, name="p", spark=spark, once=True))
    middle = store.cuts.tail(SOURCE)
    put(store, range(50, 100))
    again = finished(run(store, COUNTS, name="p", spark=spark, once=True))
    whole = expected(store, until=94)
    assert counted(store) == whole
    # What this run gave, as a table and as a DataFrame.
    fresh = again.collect()
    assert fresh.num_rows == sum(start >= 40 for start, *_ in whole)
    assert again.dataframe("out/counts").count() == fresh.num_rows
    with pytest.raises(InvalidArgument, match="writes no 'out/other'; it writes out/counts"):
        again.collect("out/other")

    # From a cut: what lies behind it, behind the earlier results.
    finished(run(store, COUNTS, name="p", spark=spark, once=True, start_from=middle))
    assert counted(store) == whole + Counter({each: 1 for each in whole if each[0] >= 50})
    # Instead of them.
    finished(run(store, COUNTS, name="p", spark=spark, once=True, start_from="head", replace=True))
    assert counted(store) == whole
    assert pipeline_admin.find(store, "p").generation == 3
    folders = [path.name for path in (Path(store.url) / "pipelines" / "p" / "out.counts").iterdir()]
    assert folders == ["0003"]


def test_pipelines_that_begin_at_the_same_time_read_their_own_streams(spark: SparkSession, store: ab.Store) -> None:
    names = [f"iot/s{number}" for number in range(3)]
    for name in names:
        store.streams.create(name, schema=pa.schema([(name[-2:], pa.int64())]))
    begin, found = threading.Barrier(len(names)), dict[str, set[str]]()

    def begin_one(name: str) -> None:
        steps = plan(f"CREATE STREAM out.{name[-2:]} AS SELECT * FROM STREAM iot.{name[-2:]}")
        outputs = [step.output for step in steps]
        row = row_of.claim(store.catalog, name[-2:], "", outputs, row_of.this_process(name), now=0)
        for _ in range(3):
            begin.wait(PATIENCE_S)
            with suppress(AnabranchError):
                found.setdefault(name, set()).update(
                    prepare(spark, store, row, steps, RunOptions())[f"out/{name[-2:]}"].frame.columns
                )

    threads = [threading.Thread(target=begin_one, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    until_ended(*threads)
    assert found == {name: {name[-2:]} for name in names}


@pytest.mark.slow
def test_a_reset_forgets_and_drops_if_asked_and_a_deletion_keeps_the_results(
    spark: SparkSession, store: ab.Store
) -> None:
    put(store, range(30))
    finished(run(store, COUNTS, name="p", spark=spark, once=True))
    with pytest.raises(InvalidArgument, match="has changed since pipeline 'p' wrote its checkpoints"):
        run(store, COUNTS.replace("10 seconds", "20 seconds"), name="p", spark=spark)
    assert pipeline_admin.reset(store, "p", drop_results=True) == ("out/counts", "out/counts_late")
    assert not store.streams.exists("out/counts")
    finished(run(store, COUNTS, name="p", spark=spark, once=True))
    assert counted(store) == expected(store, until=24)
    # Deleted, it leaves its results alone.
    assert pipeline_admin.delete(store, "p") == ("out/counts_late",)
    assert pipeline_admin.pipelines(store) == []
    assert not (Path(store.url) / "pipelines" / "p").exists()
    assert counted(store) == expected(store, until=24)


@pytest.mark.slow
def test_an_ephemeral_pipeline_takes_along_what_it_made_for_itself(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(30))
    with run(store, COUNTS, name="p", spark=spark, ephemeral=True) as pipeline:
        wait_for(pipeline)
        assert store.ephemeral.is_ephemeral("out/counts_late")
        root = Path(pipeline.checkpoints["out/counts"]).parent.parent
        assert root.exists()
        assert pipeline_admin.stop(store, "p", timeout_s=PATIENCE_S).state == "stopped"
        assert pipeline.await_termination(PATIENCE_S)
    assert [row.name for row in pipeline_admin.pipelines(store)] == []
    assert not root.exists()
    assert not store.streams.exists("out/counts_late")
    assert not store.ephemeral.is_ephemeral("out/counts")
    assert counted(store) == expected(store, until=24)


@pytest.mark.slow
def test_a_running_pipeline_follows_is_exclusive_and_stops_when_asked(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(30))
    with run(store, COUNTS, name="p", spark=spark) as pipeline:
        with pytest.raises(PipelineRunning):
            run(store, COUNTS, name="p", spark=spark)
        wait_for(pipeline)
        put(store, range(30, 60))
        wait_for(pipeline)
        assert counted(store) == expected(store, until=54)
        row = pipeline_admin.stop(store, "p", timeout_s=PATIENCE_S)
        assert row.state == "stopped"
        assert pipeline.await_termination(PATIENCE_S)
        assert not pipeline.active
        pipeline.stop()
    assert [each["read"] for each in pipeline_admin.find(store, "p").progress] == [60]


@pytest.mark.slow
def test_whatever_a_running_pipeline_reads_and_writes_may_be_renamed(spark: SparkSession, store: ab.Store) -> None:
    devices = pa.schema([("device", pa.string()), ("room", pa.string())])
    store.streams.create("iot/devices", schema=devices)
    with store.writer("iot/devices") as writer:
        writer.write({"device": "d0", "room": "hall"})
    sql = f"""{COUNTS};
        CREATE STREAM out.rooms AS
        SELECT d.room, s.at FROM STREAM iot.sensors s JOIN iot.devices d ON s.device = d.device
    """
    put(store, range(30))
    with run(store, sql, name="p", spark=spark) as pipeline:
        wait_for(pipeline)
        written = len(rows(store, "out/counts"))
        names = {SOURCE: "iot/probes", "iot/devices": "iot/places", "out/rooms": "out/halls"}
        names |= {"out/counts": "out/sums", "out/counts_late": "out/tardy"}
        for old, new in names.items():
            store.streams.rename(old, new)
        # Who makes a stream under a former name has nothing to do with it.
        store.streams.create("out/counts", schema=store.streams.get("out/sums").schema.columns)
        put(store, [*range(30, 60), 1], stream="iot/probes")
        put(store, [2, 3], stream="iot/probes")
        wait_for(pipeline)
        assert pipeline.collect("out/counts").num_rows == len(rows(store, "out/sums")) > written
        progress = {each.target: each for each in pipeline.progress()}
    assert sorted(row["at"].timestamp() - BASE // SECOND for row in rows(store, "out/tardy")) == [1, 2, 3]
    assert sum(row["events"] for row in rows(store, "out/sums")) == 50
    assert len(rows(store, "out/halls")) == 21  # every third of 60, and the 3 that is late elsewhere
    told = progress["out/counts"]
    assert (told.read, told.lag, told.late, told.written) == (63, 0, 3, len(rows(store, "out/sums")))
    assert rows(store, "out/counts") == []
    # The next run looks for the names in its file.
    store.streams.delete("out/counts")
    with pytest.raises(InvalidSql, match="stream 'iot/sensors' was renamed to 'iot/probes'"):
        run(store, sql, name="p", spark=spark)
    for old, new in names.items():
        store.aliases.add(new, old)
    put(store, [60, 70], stream="iot/probes")
    finished(run(store, sql, name="p", spark=spark, once=True))
    assert sum(row["events"] for row in rows(store, "out/sums")) == 60


def wait_for(pipeline: Pipeline) -> None:
    until(pipeline.caught_up)


@pytest.mark.slow
def test_complete_mode_keeps_the_newest_results_alone(spark: SparkSession, store: ab.Store) -> None:
    sql = """CREATE STREAM out.devices WITH (mode = complete) AS
             SELECT device, count(*) AS events FROM STREAM iot.sensors GROUP BY device"""
    put(store, range(30))
    finished(run(store, sql, name="p", spark=spark, once=True))
    put(store, range(30, 45))
    pipeline = finished(run(store, sql, name="p", spark=spark, once=True))
    assert sorted(pipeline.collect().to_pylist(), key=lambda row: row["device"]) == [
        {"device": f"d{n}", "events": 15} for n in range(3)
    ]


def test_a_query_that_fails_ends_the_pipeline_with_one_sentence(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(3))
    sql = "CREATE STREAM out.bad AS SELECT device, at, CAST(raise_error('no good') AS STRING) AS x FROM STREAM iot.sensors"
    pipeline = run(store, sql, name="p", spark=spark)
    with pytest.raises(PipelineFailed, match=r"out/bad: .*no good") as failed:
        pipeline.await_termination(PATIENCE_S)
    assert "\n" not in str(failed.value)
    row = pipeline_admin.find(store, "p")
    assert row.state == "failed"
    assert row.error is not None and "no good" in row.error


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT at,\n  devise FROM STREAM iot.sensors", r"line 3: .*`devise` cannot be resolved. Did you mean"),
        ("SELECT at, count(* FROM STREAM iot.sensors", r"line \d: .*never closed"),
        ("SELECT at\nFROM STREAM iot.sensors WHERE > 3", r"line 3: Syntax error at or near '>'"),
        ("SELECT * FROM STREAM iot.nothing", r"line 1: stream 'iot/nothing' not found"),
        ("SELECT * FROM STREAM iot.sensors JOIN iot.nothing USING (device)", "`iot`.`nothing` cannot be found"),
        ("SELECT device, count(*) AS n FROM STREAM iot.sensors GROUP BY device", "without watermark"),
        ("SELECT * FROM STREAM iot.sensors ORDER BY at", "Sorting is not supported"),
        ("SELECT *, celsius AS at FROM STREAM iot.sensors", "two columns are called 'at'"),
        ("SELECT nofunction(at) FROM STREAM iot.sensors", "nofunction"),
    ],
)
def test_a_mistake_in_a_statement_is_one_sentence_with_its_line(
    spark: SparkSession, store: ab.Store, query: str, message: str
) -> None:
    with pytest.raises(InvalidSql, match=message) as refused:
        run(store, f"CREATE STREAM out.bad AS\n{query}", name="p", spark=spark)
    assert refused.value.line is not None
    assert "\n" not in str(refused.value)
    assert not store.streams.exists("out/bad")


def test_what_does_not_fit_is_refused_before_anything_runs(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(3))
    with pytest.raises(InvalidSql, match="key='nothing' is not a column"):
        run(
            store, "CREATE STREAM out.a WITH (key = nothing) AS SELECT * FROM STREAM iot.sensors", name="p", spark=spark
        )
    store.scopes.create("out", exist_ok=True)
    store.streams.create("out/a", schema=pa.schema([("x", pa.int64())]))
    with pytest.raises(InvalidSql, match="'out/a' exists with other columns"):
        run(store, "CREATE STREAM out.a AS SELECT * FROM STREAM iot.sensors", name="p", spark=spark)
    other = store.cuts.tail("out/a")
    with pytest.raises(InvalidArgument, match="no --from says where 'iot/sensors' begins"):
        run(store, COUNTS, name="p", spark=spark, start_from=other)
    with pytest.raises(InvalidArgument, match="replace requires a place"):
        run(store, COUNTS, name="p", spark=spark, replace=True)
    with pytest.raises(InvalidArgument, match="needs a name"):
        run(store, COUNTS, spark=spark)
    with ab.connect("memory://") as memory, pytest.raises(InvalidArgument, match="use a folder"):
        run(memory, COUNTS, name="p", spark=spark)


@pytest.mark.slow
def test_each_micro_batch_of_a_traced_store_has_a_span(spark: SparkSession, tmp_path: Path) -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    new_store(tmp_path / "traced").close()
    with ab.connect(tmp_path / "traced", tracer_provider=provider, create=True) as store:
        for start in (0, 100, 200):  # each a commit, which a batch does not cut
            put(store, range(start, start + 100))
        finished(run(store, COUNTS, name="rollups", spark=spark, once=True, events_max=100))
    spans = [span for span in exporter.get_finished_spans() if span.name == "process out/counts"]
    found = [dict(span.attributes or {}) for span in spans]
    assert sum(int(str(each["messaging.batch.message_count"])) for each in found) == 300
    assert [each["anabranch.pipeline.batch"] for each in found] == list(range(len(found)))
    assert {each["anabranch.pipeline.name"] for each in found} == {"rollups"}
    assert {each["messaging.operation.type"] for each in found} == {"process"}
    for span in spans:
        assert span.parent is None and span.start_time is not None and span.end_time is not None
        assert span.start_time < span.end_time
