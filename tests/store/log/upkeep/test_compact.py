"""Compaction: the same rows at the same offsets, in plain Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch import limits
from anabranch.core.checksum import checksum
from anabranch.core.compaction import CompactionPolicy
from anabranch.errors import Closed, CorruptBlob, FormatTooNew, LeaseExpired, StreamNotFound
from anabranch.log.parquet.builder import ParquetBuilder
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.upkeep.collect import collect
from anabranch.log.upkeep.compact import CompactReport, compact
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import LogId, StreamId
from anabranch.model.schema import StreamSchema
from tests.store.kit import SCHEMA, SECOND, Kit


@pytest.fixture(params=[0, limits.INLINE_BYTES_MAX], ids=["blobs", "inlined"])
def kit(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kit]:
    made = Kit(tmp_path, inline_bytes_max=request.param)
    yield made
    made.close()


def run(kit: Kit, **options: Any) -> CompactReport:
    return compact(kit.catalog, kit.blobs, kit.runtime, **options)


def fill(kit: Kit, stream: StreamId, commits: int = 5) -> None:
    for _ in range(commits):
        kit.append(stream, [3, 1, 2, 4])
        kit.clock.pass_time(SECOND)


def test_rows_offsets_and_append_times_do_not_change(kit: Kit) -> None:
    stream = kit.create("iot/sensors", segments=2)
    fill(kit, stream)
    before = {log: kit.read(log) for log in kit.logs(stream)}
    states = kit.view(stream).logs
    last = {log: kit.extents(log)[-1].size_end for log in kit.logs(stream)}

    report = run(kit, force=True)

    assert (report.files, report.events, report.extents, report.lost, report.skipped) == (1, 20, 10, 0, ())
    assert report.bytes_in > 0
    assert report.bytes_out > 0
    assert kit.view(stream).logs == states
    for log, rows in before.items():
        (extent,) = kit.extents(log)
        assert (extent.start, extent.stop, extent.encoding) == (0, rows.num_rows, "parquet")
        assert extent.size_end == last[log]
        assert extent.appended.low == rows["_appended"][0].value
        assert extent.appended.high == rows["_appended"][-1].value
        assert extent.events.low == min(rows["at"].cast(pa.int64()).to_pylist())
        assert extent.events.high == max(rows["at"].cast(pa.int64()).to_pylist())
        assert kit.read(log).equals(rows)


def test_a_forced_compaction_of_compacted_logs_does_nothing(kit: Kit) -> None:
    stream = kit.create("iot/sensors", segments=4)
    fill(kit, stream)
    assert run(kit, force=True).files == 1
    assert run(kit, force=True).files == 0


def test_small_files_are_merged_with_what_follows(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    for _ in range(3):
        fill(kit, stream, 2)
        run(kit, force=True)
    (log,) = kit.logs(stream)
    assert len(kit.extents(log)) == 1
    assert kit.read(log).num_rows == 18
    assert len(set(kit.read(log)["_appended"].to_pylist())) == 6


def test_fresh_small_extents_wait_until_they_are_old(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    assert run(kit).files == 0
    kit.clock.pass_time(limits.COMPACT_AGE_US)
    assert run(kit).files == 1


def test_one_stream_alone_may_be_compacted(kit: Kit) -> None:
    one, other = kit.create("iot/one"), kit.create("iot/other")
    for stream in (one, other):
        fill(kit, stream)
    run(kit, force=True, stream=one)
    assert {extent.encoding for extent in kit.all_extents(one)} == {"parquet"}
    assert {extent.encoding for extent in kit.all_extents(other)} == {"arrow"}
    with pytest.raises(StreamNotFound):
        run(kit, stream=StreamId(1))


def test_small_logs_of_equal_columns_share_a_file(kit: Kit) -> None:
    one, two = kit.create("iot/one", segments=2), kit.create("iot/two", segments=2)
    for stream in (one, two):
        fill(kit, stream)
    assert run(kit, force=True).files == 1
    (key,) = kit.files("history/")
    reader = ParquetReader(key, kit.blobs.get(key))
    parts = reader.parts()
    assert [part["groups"] for part in parts] == [1] * 4
    assert {part["stream"] for part in parts} == {f"{one:016x}", f"{two:016x}"}
    for extent in (*kit.all_extents(one), *kit.all_extents(two)):
        (part,) = [part for part in parts if part["log"] == extent.log]
        assert (part["row"], part["start"], part["stop"]) == (extent.location.row, extent.start, extent.stop)
        assert reader.metadata.row_group(part["group"]).num_rows == part["rows"] == extent.stop - extent.start
        assert extent.checksum == checksum(kit.blobs.get(key))


def test_rows_of_an_older_schema_are_widened_with_nulls(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream, 2)
    wider = SCHEMA.evolved(pa.schema([*SCHEMA.columns, ("volts", pa.float32())]))
    with kit.catalog.writing() as txn:
        info = kit.view(stream).info
        txn.update_stream(replace(info, schema=wider, schema_version=2, version=info.version + 1))
    fill(kit, stream, 2)
    (log,) = kit.logs(stream)
    before = kit.read(log, wider.columns)
    run(kit, force=True)
    (extent,) = kit.extents(log)
    assert extent.schema == 2
    assert kit.read(log, wider.columns).equals(before)
    assert kit.read(log, wider.columns)["volts"].null_count == 12


def test_every_engine_reads_the_files_natively(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    run(kit, force=True)
    (key,) = kit.files("history/")
    path = kit.blobs.path(key)
    assert pl.read_parquet(path).height == 15
    assert duckdb.execute(f"select count(*), max(_appended) is not null from '{path}'").fetchall() == [(15, True)]
    table = pq.read_table(path)
    assert table.column_names == ["device", "at", "celsius", "_appended"]
    assert table.schema.field("_appended").type == pa.timestamp("us", tz="UTC")
    kit.close()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.string()), [["a", None], None, []]),
        (pa.map_(pa.string(), pa.int32()), [[("a", 1)], None, []]),
        (
            pa.struct([("x", pa.int8()), ("l", pa.list_(pa.int64()))]),
            [{"x": 1, "l": [2]}, None, {"x": None, "l": None}],
        ),
        (pa.uint64(), [2**64 - 1, None, 0]),
        (pa.float16(), [1.5, None, 0.0]),
        (pa.decimal128(38, 9), [None, None, None]),
        (pa.time32("s"), [1, None, 2]),
        (pa.duration("us"), [1, None, -2]),
        (pa.bool_(), [True, None, False]),
        (pa.timestamp("us"), [-(2**62), None, 2**62]),
        (pa.date32(), [-1, None, 20_000]),
        (pa.binary(), [b"\0\xff", None, b""]),
    ],
    ids=str,
)
def test_columns_of_every_type_come_back_as_they_were(tmp_path: Path, kind: pa.DataType, values: list[object]) -> None:
    kit = Kit(tmp_path)
    schema = StreamSchema.typed(pa.schema([("value", kind)]))
    stream = kit.create("all/types", schema=schema)
    batch = pa.record_batch([pa.array(values, kind)], schema=schema.columns)
    kit.append(stream, [3], rows=batch)
    kit.append(stream, [3], rows=batch)
    (log,) = kit.logs(stream)
    before = kit.read(log, schema.columns)
    assert run(kit, force=True).skipped == ()
    after = kit.read(log, schema.columns)
    assert after.schema.equals(before.schema)
    assert after.equals(before)
    kit.close()


def test_a_large_log_is_cut_into_files_and_row_groups(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    stream = kit.create("iot/sensors")
    for _ in range(20):
        kit.append(stream, [1000])
    (log,) = kit.logs(stream)
    before = kit.read(log)
    size = kit.extents(log)[-1].size_end
    report = run(kit, policy=CompactionPolicy(bytes_min=size // 5, bytes_max=size * 2 // 5))
    assert report.files == 3
    assert kit.extents(log)[0].start == 0
    assert kit.read(log).equals(before)
    assert run(kit, policy=CompactionPolicy(bytes_min=size // 5, bytes_max=size * 2 // 5), force=True).files == 0
    kit.close()


def test_row_groups_stay_below_their_limits() -> None:
    columns = SCHEMA.columns
    batch = pa.record_batch([pa.array(["a"] * 500), pa.nulls(500, TIME_TYPE), pa.array([0.5] * 500)], schema=columns)
    builder = ParquetBuilder(columns, group_rows=700)
    builder.begin(StreamId(1), LogId(1), 0, 1)
    for _ in range(4):
        builder.write(batch, pa.nulls(500, TIME_TYPE))
    builder.end()
    metadata = ParquetReader("file", builder.finish().data).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [700, 700, 600]

    builder = ParquetBuilder(columns, group_bytes=batch.nbytes // 2)
    builder.begin(StreamId(1), LogId(1), 0, 1)
    builder.write(batch, pa.nulls(500, TIME_TYPE))
    builder.end()
    assert ParquetReader("file", builder.finish().data).metadata.num_row_groups == 3


def test_a_file_of_a_newer_release_or_another_writer_is_refused() -> None:
    def file(metadata: dict[str, str]) -> pa.Buffer:
        sink = pa.BufferOutputStream()
        table = pa.table({"device": ["a"]}).replace_schema_metadata(metadata)
        pq.write_table(table, sink)
        return sink.getvalue()

    with pytest.raises(FormatTooNew):
        ParquetReader("file", file({"anabranch": '{"format": 2, "parts": []}'}))
    with pytest.raises(CorruptBlob):
        ParquetReader("file", file({}))


def test_thousands_of_single_events_become_one_row_group() -> None:
    columns = SCHEMA.columns
    builder = ParquetBuilder(columns)
    builder.begin(StreamId(1), LogId(1), 0, 1)
    for i in range(3_000):
        one = pa.record_batch([pa.array([str(i)]), pa.array([i], TIME_TYPE), pa.array([0.5])], schema=columns)
        builder.write(one, pa.array([i], TIME_TYPE))
    builder.end()
    reader = ParquetReader("file", builder.finish().data)
    assert reader.metadata.num_row_groups == 1
    (rows,) = [batch for batch, _ in reader.read(1_000, 1_500, columns)]
    assert rows["device"].to_pylist() == [str(i) for i in range(1_000, 2_500)]


def test_columns_that_repeat_have_a_dictionary_and_others_none(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    stream = kit.create("iot/sensors")
    kit.append(stream, [5_000])
    run(kit, force=True)
    (key,) = kit.files("history/")
    group = pq.ParquetFile(kit.blobs.path(key)).metadata.row_group(0)
    with_dictionary = [group.column(i).path_in_schema for i in range(4) if group.column(i).has_dictionary_page]
    assert with_dictionary == ["device", "_appended"]
    kit.close()


class Interfering:
    """Blobs that let something happen just before a file is put."""

    def __init__(self, kit: Kit, meanwhile: Callable[[], object]) -> None:
        self._blobs = kit.blobs
        self._meanwhile = meanwhile

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        self._meanwhile()
        self._blobs.put(key, chunks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)


def interfered(kit: Kit, meanwhile: Callable[[], object]) -> CompactReport:
    blobs: Any = Interfering(kit, meanwhile)
    return compact(kit.catalog, blobs, kit.runtime, force=True)


def test_a_lost_race_changes_nothing_and_leaves_no_file(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    before = kit.read(log)
    report = interfered(kit, lambda: run(kit, force=True))
    assert (report.files, report.events, report.lost) == (0, 0, 1)
    assert len(kit.files("history/")) == 1
    assert kit.read(log).equals(before)


def test_of_a_shared_file_the_races_that_were_won_count(kit: Kit) -> None:
    one, two = kit.create("iot/one"), kit.create("iot/two")
    for stream in (one, two):
        fill(kit, stream)
    report = interfered(kit, lambda: run(kit, stream=one, force=True))
    assert (report.files, report.events, report.lost) == (1, 15, 1)
    assert len(kit.files("history/")) == 2


def test_appends_during_a_compaction_follow_its_file(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    report = interfered(kit, lambda: kit.append(stream, [7]))
    assert report.events == 15
    assert [extent.encoding for extent in kit.extents(log)] == ["parquet", "arrow"]
    assert kit.read(log).num_rows == 22


def test_a_compaction_stalled_beyond_the_horizon_swaps_nothing(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)

    def stall() -> None:
        kit.clock.pass_time(limits.LEASE_US + limits.HORIZON_US + 1)
        collect(kit.catalog, kit.blobs, kit.runtime)

    with pytest.raises(LeaseExpired):
        interfered(kit, stall)
    assert {extent.encoding for extent in kit.all_extents(stream)} == {"arrow"}


def test_a_compaction_holds_a_lease_and_releases_it(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    began = kit.clock.now()

    def later() -> None:
        kit.clock.pass_time(limits.LEASE_US - 1)
        collect(kit.catalog, kit.blobs, kit.runtime, horizon_us=0)

    assert interfered(kit, later).files == 1
    with kit.catalog.reading() as snapshot:
        assert snapshot.horizon() == began
        assert snapshot.leases() == []


def test_a_damaged_blob_is_skipped_and_named(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    good, bad = kit.create("iot/good"), kit.create("iot/bad")
    for stream in (good, bad):
        fill(kit, stream)
    (log,) = kit.logs(bad)
    victim = kit.extents(log)[2]
    assert victim.key is not None
    flip(tmp_path / victim.key, victim.location.offset + victim.location.length - 1)
    report = run(kit, force=True)
    assert report.events == 15
    assert victim.key in report.skipped[0]
    assert {extent.encoding for extent in kit.all_extents(bad)} == {"arrow"}
    assert {extent.encoding for extent in kit.all_extents(good)} == {"parquet"}
    kit.close()


def flip(path: Path, at: int) -> None:
    """Change one byte of a file in place."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def test_a_log_that_several_streams_view_is_compacted_once(kit: Kit) -> None:
    stream = kit.create("iot/sensors", segments=2)
    fill(kit, stream)
    kit.copy(stream, "iot/copy")
    assert run(kit, force=True).events == 20
    assert run(kit, force=True).files == 0


def test_a_log_outlives_its_stream_and_is_compacted_with_its_schema(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    before = kit.read(log)
    kit.copy(stream, "iot/copy")
    kit.drop(stream)
    assert run(kit, force=True).files == 1
    assert kit.read(log).equals(before)


def test_unviewed_extents_are_not_compacted(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    kit.drop(stream)
    assert run(kit, force=True).files == 0


def test_progress_reports_logical_bytes_and_may_stop_the_work(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    told: list[tuple[str, int, int]] = []
    run(kit, force=True, progress=lambda *each: told.append(each))
    size = kit.all_extents(stream)[-1].size_end
    assert told[-1] == ("compact", size, size)

    fill(kit, stream)

    def stop(what: str, done: int, total: int) -> None:
        raise Closed("store")

    with pytest.raises(Closed):
        run(kit, force=True, progress=stop)
    assert [extent.encoding for extent in kit.all_extents(stream)] == ["parquet"] + ["arrow"] * 5
    assert run(kit, force=True).files == 1


def test_more_extents_than_one_plan_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMPACT_EXTENTS_MAX", 7)
    monkeypatch.setattr(limits, "EXTENTS_PER_PLAN_MAX", 3)
    kit = Kit(tmp_path, inline_bytes_max=limits.INLINE_BYTES_MAX)
    one, two = kit.create("iot/one"), kit.create("iot/two", segments=3)
    fill(kit, one, 20)
    fill(kit, two, 5)
    before = {log: kit.read(log) for log in (*kit.logs(one), *kit.logs(two))}
    report = run(kit, force=True)
    assert report.events == 60 + 30
    assert report.extents == 20 + 15
    assert report.files == 5  # of at most seven each
    assert {log: kit.read(log) for log in before} == before
    kit.close()
