"""What surrounds the data source and needs no Spark: options, dealing out, and what a checkpoint tells."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import anabranch as ab
from anabranch.errors import InvalidArgument, InvalidName, MissingExtra, ScopeRenamed, StreamNotFound, StreamRenamed
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ports import Runtime
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.option_list import OPTIONS, READ, WRITE
from anabranch.spark.options import ReadOptions, WriteOptions, _ParsedOptions, from_json_option, to_json_option
from anabranch.spark.pipelines.late_commit import LateEventsSpec, batch_read
from anabranch.spark.pipelines.result_streams import _present
from anabranch.spark.pipelines.windows.spans import StatementWindow
from anabranch.spark.sink import _target
from anabranch.spark.source.checkpoint import committed
from anabranch.spark.source.offsets import SourceOffset, series_of
from anabranch.spark.source.scan import ScanRange, split_into_tasks
from anabranch.spark.source.source import StreamReader, schema
from anabranch.streams.publish import NumberedUnit
from docs import spark_options_page
from tests.spark.streams import new_store, write

NEEDED = {"path": "river", "stream": "s/in"}
BROKER = {"path": "anabranch://host:7410", "stream": "s/in"}
SEGMENT = SegmentId(0, 0)
MIB = 1024 * 1024


def test_options_are_read_in_any_case_and_with_their_defaults() -> None:
    options = ReadOptions.of({**NEEDED, "MAXEVENTSPERTRIGGER": "1_000", "columns": " a, b,a", "keys": '["x,y", 7]'})
    assert options.store.url == str(Path.cwd() / "river")
    assert (options.events_max, options.bytes_max, options.start, options.end) == (1000, None, "head", None)
    assert (options.columns, options.keys, options.poll_s) == (("a", "b"), ("x,y", "7"), 0.5)
    assert ReadOptions.of({**NEEDED, "keys": "[true, false, 1]"}).keys == ("true", "false", "1")
    assert ReadOptions.of({**NEEDED, "path": "file:///a/b", "columns": "[]"}).columns == ()
    assert ReadOptions.of({**NEEDED, "path": "file:///a/b"}).store.url == "/a/b"
    written = WriteOptions.of({**NEEDED, "create": "TRUE", "queryName": "q", "some.other.option": "x"})
    assert (written.create, written.segments, written.late) == (True, 1, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "s/in"}, "the location of the store is missing"),
        ({"path": "river"}, "the stream is missing"),
        ({**NEEDED, "path": "memory://"}, "can't see memory://"),
        ({**NEEDED, "path": "s3://bucket"}, "is not the address of a store"),
        ({**NEEDED, "collumns": "a"}, "did you mean 'columns'"),
        ({**NEEDED, "maxBytesPerTriger": "1"}, "did you mean 'maxBytesPerTrigger'"),
        (
            {**NEEDED, "nonsense": "1"},
            "unknown option 'nonsense' for reading from a stream; the options are: access, blobs, by, ca, columns,",
        ),
        ({**NEEDED, "paths": "[]"}, "did you mean 'path'"),
        ({**NEEDED, "checkpointLocation": "x"}, "can't be used when reading"),
        ({**NEEDED, "pollMs": "-1"}, "an integer of at least 0"),
        ({**NEEDED, "pollMs": "1__0"}, "an integer of at least 0, got '1__0'"),
        ({**NEEDED, "maxBytesPerTrigger": "9" * 5_000}, "an integer of at least 1"),
        ({**NEEDED, "keys": '["a"'}, "is not a JSON list"),
        ({**NEEDED, "keys": '["a", null]'}, "expected option 'keys' as a list of texts, integers and booleans"),
        ({**NEEDED, "ranges": "[Infinity, []]"}, "option 'ranges' is JSON"),
        ({**NEEDED, "keys": "[1.5]"}, "expected option 'keys' as a list of texts, integers and booleans"),
        ({**NEEDED, "tokenFile": "token"}, "is only for a broker's address"),
        ({**BROKER, "blobs": "s3://bucket"}, "with a broker, which opens the store itself"),
        ({**BROKER, "access": "native"}, "must say where the store is"),
        ({**BROKER, "access": "fast"}, "expected option 'access' as auto or broker or native, got 'fast'"),
        ({**BROKER, "nativePath": "anabranch://host:7411"}, "not of a broker"),
        ({**BROKER, "nativePath": "memory://"}, "can't see memory://"),
        ({**BROKER, "nativePath": "postgresql://me:pass@host/db", "blobs": "b"}, "Spark shows options"),
        ({**BROKER, "nativePath": "river", "late": "{}"}, "can't be used"),
        ({**NEEDED, "access": "broker"}, "is only for a broker's address"),
        ({**BROKER, "token": "secret"}, "set the environment variable ANABRANCH_TOKEN"),
        ({**BROKER, "path": "anabranch://a b"}, "a b"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ReadOptions.of(options)


def test_options_that_spark_adds_itself_are_no_mistake() -> None:
    added = {"queryname": "q", "owner": "me", "provider": "anabranch", "location": "file:/x", "option.stream": "s/in"}
    assert ReadOptions.of({**NEEDED, **added}).stream == WriteOptions.of({**NEEDED, **added}).stream


def test_the_page_of_options_is_the_one_that_the_code_gives() -> None:
    page = spark_options_page.PAGE.read_text()
    assert page == spark_options_page.page(), "make it anew: python docs/spark_options_page.py"
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [each.name for each in OPTIONS]


def test_every_option_of_the_list_is_parsed_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options that the parsing asks for are those of the list."""
    asked: set[str] = set()
    text = _ParsedOptions.text

    def note(self: _ParsedOptions, name: str) -> str | None:
        asked.add(name)
        return text(self, name)

    monkeypatch.setattr(_ParsedOptions, "text", note)
    for parse, known in ((ReadOptions.of, READ), (WriteOptions.of, WRITE)):
        asked.clear()
        parse(NEEDED)
        assert asked == set(known)


def test_a_stream_that_has_another_name_by_now_is_not_made_anew() -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        columns = pa.schema([("n", pa.int64())])
        made = _target(store, WriteOptions.of({**NEEDED, "create": "true"}), columns)
        store.streams.rename("s/in", "s/out")
        with pytest.raises(StreamRenamed, match="s/out"):
            _target(store, WriteOptions.of({**NEEDED, "create": "true"}), columns)
        with pytest.raises(StreamRenamed, match="s/out"):
            _present(store, StreamName("s", "in"), StreamSchema.typed(columns, None, None))
        store.scopes.rename("s", "t")
        with pytest.raises(ScopeRenamed, match="'t'"):
            _target(store, WriteOptions.of({**NEEDED, "stream": "s/new", "create": "true"}), columns)
        assert [info.id for info in store.streams.list()] == [made]


def test_a_sink_and_a_source_that_know_their_streams_id_find_it_under_another_name(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        made = store.streams.get("s/in").id
        options = {"path": store.url, "stream": "s/in", "streamId": str(made)}
        store.streams.rename("s/in", "s/now")
        columns = pa.schema([("n", pa.int64())])
        store.streams.create("s/in", schema=columns)
        assert _target(store, WriteOptions.of({**options, "create": "true"}), columns) == made
        reader = StreamReader(options, schema(options))
        assert StreamCut.parse(reader.initialOffset()["cut"]).stream == made
        store.streams.delete("s/now")
        with pytest.raises(StreamNotFound):
            _target(store, WriteOptions.of({**options, "create": "true"}), columns)


def test_a_bad_stream_name_is_refused() -> None:
    with pytest.raises(InvalidName):
        WriteOptions.of({"path": "river", "stream": "in"})


def test_ranges_are_dealt_out_in_order_and_in_fair_shares() -> None:
    ranges = [ScanRange(SegmentId(0, n), 5, 5 + count) for n, count in enumerate([10, MIB, 3, 2 * MIB])]
    dealt = split_into_tasks(ranges, tasks=4)
    assert len(dealt) == 4
    flat = [(each.segment, offset) for share in dealt for each in share for offset in (each.start, each.stop)]
    assert flat == sorted(flat)
    assert sum(each.events for share in dealt for each in share) == sum(each.events for each in ranges)
    assert len(split_into_tasks([ScanRange(SegmentId(0, n), 0, 10) for n in range(1000)], tasks=4)) == 1
    assert split_into_tasks([], tasks=4) == []


def cut(offset: int) -> StreamCut:
    return StreamCut.of(StreamId(7), {SEGMENT: offset})


def log_batch(folder: Path, batch: int, watermark_ms: int, *offsets: int | None, stream: str = "s/in") -> None:
    """An entry of Spark's offset log; None for a source that had nothing yet."""
    (folder / "offsets").mkdir(exist_ok=True)
    lines = ["v1", json.dumps({"batchWatermarkMs": watermark_ms})]
    for offset in offsets:
        value = None if offset is None else SourceOffset(StreamName.parse(stream), cut(2), cut(offset)).to_json()
        lines.append("-" if value is None else json.dumps(value))
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))


def test_a_checkpoint_reports_what_a_batch_read_and_dropped_by(tmp_path: Path) -> None:
    log_batch(tmp_path, 0, 0, 5)
    log_batch(tmp_path, 1, 9_000, 5, None)
    log_batch(tmp_path, 2, 11_000, 8, 6, stream="s/renamed")
    name = cut(2).stream
    runtime = Runtime()
    first, second, third = (batch_read(checkpoint_folder(str(tmp_path), runtime), number) for number in range(3))
    assert (first.watermark_us, first.parts) == (0, {name: (cut(2), cut(5))}), "the first batch begins at the origin"
    assert (second.watermark_us, second.parts) == (0, {name: (cut(5), cut(5))})
    assert (third.watermark_us, third.parts) == (9_000_000, {name: (cut(5), cut(8))})
    with pytest.raises(InvalidArgument, match="the checkpoint has no file"):
        batch_read(checkpoint_folder(f"file://{tmp_path}", runtime), 3)
    for elsewhere in ("hdfs://name/place", "az://container/place", "gs://bucket/place"):
        with pytest.raises(InvalidArgument, match="in a folder or in S3, not in"):
            checkpoint_folder(elsewhere, runtime)


def test_a_batch_that_was_published_counts_though_spark_did_not_note_it(tmp_path: Path) -> None:
    log_batch(tmp_path, 0, 0, 5)
    log_batch(tmp_path, 1, 9_000, 8)
    (tmp_path / "metadata").write_text('{"id": "q"}')
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    place = checkpoint_folder(str(tmp_path), Runtime())
    with ab.connect("memory://") as store:
        assert committed(store.catalog, place) == (0, {cut(5).stream: cut(5)})
        store.publish([], request=NumberedUnit(series_of("q"), 1))
        assert committed(store.catalog, place) == (9_000_000, {cut(8).stream: cut(8)})


def test_a_query_goes_on_when_its_stream_is_renamed(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        options = {"path": store.url, "stream": "s/in"}
        reader = StreamReader(options, schema(options))
        start = reader.initialOffset()
        store.streams.rename("s/in", "s/now")
        write(store, 0, 10, stream="s/now")
        end = reader.latestOffset(start, ReadAllAvailable())
        assert reader.reportLatestOffset() == end
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        assert sorted(n for batch in batches for n in batch.column("n").to_pylist()) == list(range(10))


def test_the_tail_is_reported_of_a_restarted_query_too(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        options = {"path": store.url, "stream": "s/in"}
        reader, restarted = (StreamReader(options, schema(options)) for _ in range(2))
        start = reader.initialOffset()
        write(store, 0, 10)
        end = restarted.latestOffset(start, ReadMaxRows(5))  # Spark asks a restarted query for no initial offset
        tail = reader.latestOffset(start, ReadAllAvailable())
        assert end != tail == reader.reportLatestOffset() == restarted.reportLatestOffset()


def test_checkpoints_lie_in_any_folder_and_nothing_but_them_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "we[i]rd #1?x=%20" / "p"
    ours = [root / "s.out" / "0001", root / "s.out_late" / "12345"]
    others = [root / "photos" / "0001", root / "s.out" / "notes", tmp_path / "neighbour" / "s.out" / "0001"]
    for folder in (*ours, *others):
        (folder / "offsets").mkdir(parents=True)
    assert checkpoint_folder(f"file:{root}", Runtime()).for_spark == str(root)
    place = checkpoint_folder(str(ours[0]), Runtime())
    assert place.names("") == ["offsets"]
    place.above(2).remove()
    assert not any(folder.exists() for folder in (*ours, ours[1].parent))
    assert all(folder.exists() for folder in others)


def test_an_account_of_late_events_survives_its_option() -> None:
    for lateness_us in (None, 0, 5):
        account = LateEventsSpec(StreamId(8), {StreamId(7): "at"}, (StatementWindow("at", 10, 4, 1),), lateness_us)
        assert from_json_option(LateEventsSpec, "late", to_json_option(account)) == account
    with pytest.raises(InvalidArgument, match="option 'late' is JSON"):
        from_json_option(LateEventsSpec, "late", "{}")


def test_an_offset_survives_its_json_and_keeps_its_text() -> None:
    offset = SourceOffset(StreamName("s", "in"), cut(1), cut(3))
    assert SourceOffset.from_json(offset.to_json()) == offset
    assert list(offset.to_json()) == ["stream", "origin", "cut"]
    other_start = SourceOffset(StreamName("s", "in"), cut(2), cut(2))
    assert offset.start_of_batch(other_start) == cut(1), "a replayed first batch begins where it began"
    assert offset.start_of_batch(offset.at(cut(2))) == cut(2)


def test_reading_without_spark_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.spark import read

    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtra, match=r"anabranch\[spark\]"):
        read(None, tmp_path, "s/in")  # type: ignore[arg-type]
