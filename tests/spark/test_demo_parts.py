"""The demo's parts without Spark: the proof, a user's file, the collector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.cli.demo.measure import STREAM, Collector, Sampler
from anabranch.cli.demo.proof import Claim, claims, prove
from anabranch.cli.demo.run import host_sql
from anabranch.cli.demo.user_file import load
from anabranch.errors import InvalidArgument
from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.sql.parse import parse
from anabranch.spark.pipelines.windows.spans import StatementWindow

SECOND = 1_000_000
CLAIM = Claim("s/raw", "at", "s/out", "s/out_late", 10 * SECOND, 5 * SECOND)
BASE = 1_700_000_000 * SECOND  # a multiple of the slide


@pytest.fixture
def store() -> Iterator[ab.Store]:
    with ab.connect("memory://") as opened:
        opened.scopes.create("s")
        opened.streams.create("s/raw", schema=pa.schema([("at", TIME_TYPE), ("n", pa.int64())]), time="at")
        columns = [("opened", TIME_TYPE), ("closed", TIME_TYPE), ("events", pa.int64())]
        opened.streams.create("s/out", schema=pa.schema(columns), time="closed")
        late = [("at", TIME_TYPE), ("_watermark", TIME_TYPE)]
        opened.streams.create("s/out_late", schema=pa.schema(late), time="at")
        yield opened


def put(store: ab.Store, stream: str, **columns: list[int | None]) -> None:
    schema = store.streams.get(stream).schema.columns
    with store.writer(stream) as writer:
        writer.write_batch(
            pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})
        )


def at(*seconds: float) -> list[int | None]:
    return [BASE + round(each * SECOND) for each in seconds]


def result(store: ab.Store, **events_by_start: int) -> None:
    starts = [int(name.removeprefix("s").replace("m", "-")) for name in events_by_start]
    put(
        store,
        "s/out",
        opened=at(*starts),
        closed=at(*(start + 10 for start in starts)),
        events=list(events_by_start.values()),
    )


# the proof


def test_results_and_late_events_together_make_up_every_window(store: ab.Store) -> None:
    put(store, "s/raw", at=[*at(0, 1, 6, 12), None])
    # The event at 1 came when the window from -5 to 5 was closed, but in time for the one from 0 to 10.
    result(store, sm5=1, s0=3, s5=2)
    put(store, "s/out_late", at=at(1), _watermark=at(5))
    proof = prove(store, CLAIM, watermark_us=BASE + 15 * SECOND, read_to=store.cuts.tail("s/raw"))
    assert proof.ok
    assert [(w.start_us - BASE, w.spark, w.late, w.store) for w in proof.windows] == [
        (-5 * SECOND, 1, 1, 2),
        (0, 3, 0, 3),
        (5 * SECOND, 2, 0, 2),
    ]
    assert (proof.open, proof.read, proof.unread, proof.untimed, proof.late) == (1, 5, 0, 1, 1)


@pytest.mark.parametrize("counted", [2, 4])
def test_a_missing_and_a_doubled_event_are_found(store: ab.Store, counted: int) -> None:
    put(store, "s/raw", at=at(6, 7, 8))
    result(store, s0=3, s5=counted)
    proof = prove(store, CLAIM, watermark_us=BASE + 15 * SECOND, read_to=store.cuts.tail("s/raw"))
    assert not proof.ok
    assert [window.ok for window in proof.windows] == [True, False]


def test_a_window_that_spark_never_gave_out_is_found(store: ab.Store) -> None:
    put(store, "s/raw", at=at(6))
    result(store, s0=1)
    assert not prove(store, CLAIM, watermark_us=BASE + 15 * SECOND, read_to=store.cuts.tail("s/raw")).ok


def test_events_behind_what_was_read_do_not_count(store: ab.Store) -> None:
    put(store, "s/raw", at=at(6))
    read_to = store.cuts.tail("s/raw")
    put(store, "s/raw", at=at(7, 8))
    result(store, s0=1, s5=1)
    proof = prove(store, CLAIM, watermark_us=BASE + 15 * SECOND, read_to=read_to)
    assert proof.ok
    assert (proof.read, proof.unread) == (1, 2)


def test_the_claims_are_those_of_the_shipped_statements() -> None:
    made = claims(host_sql())
    assert made == [
        Claim(STREAM, "at", f"host/{name}", f"host/{name}_late", size * SECOND, 5 * SECOND)
        for name, size in (("per_5s", 5), ("smooth", 20))
    ]


# the user's file


def test_a_csv_file_says_time_key_and_numbers_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "rides 2026.csv"
    file.write_text("city,started_at,km,note\nBern,2026-01-31 12:00:00,3.5,\nZug,2026-01-31 12:00:01.5,4,\n")
    rows = load(file)
    assert (rows.time, rows.key, rows.values, rows.stream) == ("started_at", "city", ["km"], "file/rides_2026")
    assert rows.rows.column("started_at").to_pylist()[1] == datetime(2026, 1, 31, 12, 0, 1, 500_000, UTC)
    (tumbling, sliding) = parse(rows.sql)
    assert tumbling.windows == (StatementWindow("started_at", 100_000, 100_000),)
    assert sliding.windows == (StatementWindow("started_at", 400_000, 100_000),)
    assert "`city`" in tumbling.query


@pytest.mark.parametrize("scale", [1, 1_000, 1_000_000, 1_000_000_000])
def test_numbers_since_1970_are_times_in_the_unit_that_fits(tmp_path: Path, scale: int) -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"ts": round(moment.timestamp()) * scale, "v": 1}) + "\n")
    assert load(file).rows.column("ts").to_pylist() == [moment]


def test_a_parquet_file_with_another_time_column(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    day = datetime(2026, 1, 31, tzinfo=UTC)
    table = pa.table(
        {"when": ["2026-01-31T00:00:00Z"], "t": pa.array([day + timedelta(hours=5)], pa.timestamp("ns", "UTC"))}
    )
    pq.write_table(table, file)
    assert load(file).time == "t"
    assert load(file, time="when").rows.column("when").to_pylist() == [day]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.csv", "a,b\n1,x\n", {}, "no column of .* looks like a time"),
        ("a.csv", "a,b\n1,x\n", {"time": "c"}, "has no column 'c'; it has a, b"),
        ("a.csv", "at,b\nyesterday,x\n", {"time": "at"}, "row 1: column 'at' holds no time"),
        ("a.csv", "at,b\n2026-01-31,x\n", {"key": "c"}, "has no column 'c'"),
        ("a.csv", "at,b\n", {}, "holds no rows"),
        ("a.jsonl", "{", {}, "line 1: it is not JSON"),
        ("a.txt", "x", {}, "plain lines, which have no columns"),
        ("b.csv", None, {}, "can't be read: No such file"),
    ],
)
def test_a_file_that_can_not_be_used_says_why(
    tmp_path: Path, name: str, content: str | None, options: dict[str, str], message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InvalidArgument, match=message):
        load(tmp_path / name, **options)


def test_rows_that_an_earlier_run_wrote_are_not_written_again(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("at,n\n" + "".join(f"2026-01-31T12:00:{i % 60:02}Z,{i}\n" for i in range(1200)))
    with ab.connect("memory://") as store:
        rows = load(file)
        store.scopes.create("file")
        tags = {"file": "a.csv", "rows": "1200"}
        store.streams.create("file/a", schema=rows.rows.schema, time="at", tags=tags)
        with store.writer("file/a") as writer:  # as a run that was interrupted
            writer.write_batch(rows.rows.slice(0, 500), atomic=True)
        for _ in range(2):
            rows.write(store)
            with store.reader("file/a") as reader:
                assert [event.body["n"] for event in reader] == list(range(1200))
        file.write_text("at,n\n2026-01-31T12:00:00Z,1\n")
        with pytest.raises(InvalidArgument, match="made from another file"):
            load(file).write(store)


# this machine


def test_the_collector_writes_real_measurements_until_it_is_closed() -> None:
    with ab.connect("memory://") as store:
        collector = Collector(store, period_s=0.05)
        while collector.events < 30:
            store.runtime.tasks.sleep(0.02)
        collector.close()
        collector.close()
        with store.reader(STREAM) as reader:
            table = pa.Table.from_batches(list(reader.batches()))
    assert table.num_rows == collector.events
    assert {"cpu", "memory"} <= set(pc.unique(table.column("metric")).to_pylist())
    assert pc.min(table.column("value")).as_py() >= 0
    assert table.column("at").null_count == 0


def test_a_rate_is_reported_only_from_the_second_sample_on() -> None:
    sampler = Sampler(iter([float(n) for n in range(1000)]).__next__)
    assert not [sample for sample in sampler.sample() if sample.metric == "network"]
    assert all(sample.unit == "B/s" for sample in sampler.sample() if sample.metric == "network")
