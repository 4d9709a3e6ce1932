"""What surrounds the data source and needs no Spark: options, dealing out, and what a checkpoint tells."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from anabranch.errors import InvalidArgument, InvalidName, MissingExtra
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.ports import Runtime
from anabranch.spark.checkpoint_place import checkpoint_place
from anabranch.spark.late_commit import LateAccount, batch_read
from anabranch.spark.offsets import SourceOffset
from anabranch.spark.options import ReadOptions, WriteOptions
from anabranch.spark.scan import Range, deal
from anabranch.spark.sql import Window

NEEDED = {"path": "river", "stream": "s/in"}
SEGMENT = SegmentId(0, 0)
MIB = 1024 * 1024


def test_options_are_read_in_any_case_and_with_their_defaults() -> None:
    options = ReadOptions.of({**NEEDED, "MAXEVENTSPERTRIGGER": "1_000", "columns": " a, b,a", "keys": '["x,y", 7]'})
    assert options.store.url == str(Path.cwd() / "river")
    assert (options.events_max, options.bytes_max, options.start, options.end) == (1000, None, "head", None)
    assert (options.columns, options.keys, options.poll_s) == (("a", "b"), ("x,y", "7"), 0.5)
    assert ReadOptions.of({**NEEDED, "path": "file:///a/b", "columns": "[]"}).columns == ()
    assert ReadOptions.of({**NEEDED, "path": "file:///a/b"}).store.url == "/a/b"
    written = WriteOptions.of({**NEEDED, "create": "TRUE", "queryName": "q", "some.other.option": "x"})
    assert (written.create, written.segments, written.late) == (True, 1, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "s/in"}, "where the store is"),
        ({"path": "river"}, "which stream"),
        ({**NEEDED, "path": "memory://"}, "can't see memory://"),
        ({**NEEDED, "path": "s3://bucket"}, "is no store"),
        ({**NEEDED, "collumns": "a"}, "did you mean 'columns'"),
        ({**NEEDED, "maxBytesPerTriger": "1"}, "did you mean 'maxBytesPerTrigger'"),
        ({**NEEDED, "checkpointLocation": "x"}, "means nothing when reading"),
        ({**NEEDED, "pollMs": "-1"}, "a whole number from 0"),
        ({**NEEDED, "keys": '["a"'}, "is no JSON list"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ReadOptions.of(options)


def test_a_bad_stream_name_is_refused() -> None:
    with pytest.raises(InvalidName):
        WriteOptions.of({"path": "river", "stream": "in"})


def test_ranges_are_dealt_out_in_order_and_in_fair_shares() -> None:
    ranges = [Range(SegmentId(0, n), 5, 5 + count) for n, count in enumerate([10, MIB, 3, 2 * MIB])]
    dealt = deal(ranges, tasks=4)
    assert len(dealt) == 4
    flat = [(each.segment, offset) for share in dealt for each in share for offset in (each.start, each.stop)]
    assert flat == sorted(flat)
    assert sum(each.events for share in dealt for each in share) == sum(each.events for each in ranges)
    assert len(deal([Range(SegmentId(0, n), 0, 10) for n in range(1000)], tasks=4)) == 1
    assert deal([], tasks=4) == []


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


def test_a_checkpoint_tells_what_a_batch_read_and_dropped_by(tmp_path: Path) -> None:
    log_batch(tmp_path, 0, 0, 5)
    log_batch(tmp_path, 1, 9_000, 5, None)
    log_batch(tmp_path, 2, 11_000, 8, 6)
    name = StreamName("s", "in")
    runtime = Runtime()
    first, second, third = (batch_read(checkpoint_place(str(tmp_path), runtime), number) for number in range(3))
    assert (first.watermark_us, first.parts) == (0, {name: (cut(2), cut(5))}), "the first batch begins at the origin"
    assert (second.watermark_us, second.parts) == (0, {name: (cut(5), cut(5))})
    assert (third.watermark_us, third.parts) == (9_000_000, {name: (cut(5), cut(8))})
    with pytest.raises(InvalidArgument, match="does not tell what batch 3 read"):
        batch_read(checkpoint_place(f"file://{tmp_path}", runtime), 3)
    for elsewhere in ("hdfs://name/place", "az://container/place", "gs://bucket/place"):
        with pytest.raises(InvalidArgument, match="in a folder or in S3, not in"):
            checkpoint_place(elsewhere, runtime)


def test_an_account_of_late_events_survives_its_option() -> None:
    account = LateAccount(StreamName("s", "late"), {StreamName("s", "in"): "at"}, (Window("at", 10, 4, 1),))
    assert LateAccount.from_option(account.to_option()) == account
    with pytest.raises(InvalidArgument, match="option 'late' is JSON"):
        LateAccount.from_option("{}")


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
