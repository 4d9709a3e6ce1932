"""The digest of events: the same however they are cut, stored and widened; another for any other event."""

from __future__ import annotations

import hashlib
import io
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.schema import RAW
from anabranch.transfer.archives.digest import BLOCK_ROWS, BlockSums, SegmentPart, StreamDigest, segment_digest

COLUMNS: dict[str, Any] = {
    "text": pa.array(["a", None, "ccc", "", "é", "zz"]),
    "bytes": pa.array([b"", b"x", None, b"yy", None, b"\0"]),
    "float": pa.array([1.0, None, -0.0, float("nan"), 3, 4]),
    "bool": pa.array([True, None, False, True, True, False]),
    "small": pa.array([1, 2, None, 4, 5, -6], pa.int8()),
    "list": pa.array([[1, None], None, [], [3], [4, 5], [6]], pa.list_(pa.int32())),
    "texts": pa.array([["a"], None, [], ["b", None], ["cc"], [""]], pa.list_(pa.string())),
    "map": pa.array([[("k", 1)], None, [], [("a", None), ("b", 2)], [("z", 3)], []], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": 1, "y": "q"}, None, {"x": None, "y": "r"}, {"x": 5, "y": None}, {"x": 6}, {"x": 7}]),
    "decimal": pa.array([Decimal("1.5"), None, Decimal("2.5"), None, None, Decimal("-1.0")], pa.decimal128(10, 1)),
    "date": pa.array([date(2020, 1, 1), None, None, None, date(2021, 1, 1), None]),
    "nothing": pa.nulls(6, pa.string()),
}
BATCH = pa.record_batch(COLUMNS)
APPENDED = pa.array([1, 2, 3, 4, 5, 6], TIME_TYPE)


def blocks(batch: pa.RecordBatch, cuts: tuple[int, ...] = (), start: int = BLOCK_ROWS - 4) -> list[bytes]:
    sums = BlockSums(start)
    edges = [0, *cuts, batch.num_rows]
    for low, high in pairwise(edges):
        sums.add(batch.slice(low, high - low), APPENDED.slice(low, high - low))
    return sums.blocks()


@settings(max_examples=40, deadline=None)
@given(cuts=st.sets(st.integers(1, 5)), names=st.permutations(sorted(COLUMNS)))
def test_it_depends_on_neither_cuts_nor_the_order_of_columns(cuts: set[int], names: list[str]) -> None:
    assert blocks(BATCH.select(names), tuple(sorted(cuts))) == blocks(BATCH)


def test_a_way_through_parquet_and_ipc_changes_nothing() -> None:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([BATCH]), file)
    table = pq.read_table(io.BytesIO(file.getvalue()))
    columns = [
        column.combine_chunks().cast(field.type) for column, field in zip(table.columns, BATCH.schema, strict=True)
    ]
    assert blocks(pa.record_batch(columns, schema=BATCH.schema)) == blocks(BATCH)
    assert blocks(pa.ipc.read_record_batch(BATCH.serialize(), BATCH.schema), (3,)) == blocks(BATCH)


def test_a_column_that_holds_nothing_does_not_count() -> None:
    assert blocks(BATCH.drop_columns(["nothing"])) == blocks(BATCH)
    late = pa.record_batch({"text": BATCH.column("text"), "date": BATCH.column("date")})
    sums = BlockSums(0)
    sums.add(late.select(["text"]).slice(0, 2), APPENDED.slice(0, 2))  # before the stream had the other column
    sums.add(late.slice(2), APPENDED.slice(2))
    widened = pa.record_batch(
        {
            "text": late.column("text"),
            "date": pa.concat_arrays([pa.nulls(2, pa.date32()), late.column("date").slice(2)]),
        }
    )
    assert sums.blocks() == blocks(widened, start=0)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "nothing"])
def test_any_other_value_gives_another(name: str) -> None:
    seen = {tuple(blocks(BATCH))}
    for row in range(6):
        order = [*range(6)]
        order[row] = (row + 1) % 6
        changed = BATCH.column(name).take(pa.array(order))
        if changed.equals(BATCH.column(name)):
            continue
        columns = [changed if each == name else BATCH.column(each) for each in BATCH.schema.names]
        seen.add(tuple(blocks(pa.record_batch(columns, schema=BATCH.schema))))
    assert len(seen) >= 5
    assert blocks(BATCH.drop_columns([name])) != blocks(BATCH)
    assert blocks(BATCH.rename_columns([each if each != name else "other" for each in BATCH.schema.names])) != blocks(
        BATCH
    )


def test_places_and_times_count() -> None:
    assert blocks(BATCH, start=0) != blocks(BATCH, start=1)
    later = BlockSums(BLOCK_ROWS - 4)
    later.add(BATCH, pa.array([1, 2, 3, 4, 5, 7], TIME_TYPE))
    assert later.blocks() != blocks(BATCH)
    parts = [
        segment_digest(segment, FULL_KEY_RANGE, start, 6, [b"1"])
        for segment in (SegmentId(0, 0), SegmentId(0, 1))
        for start in (0, 1)
    ]
    assert len({part.digest for part in parts}) == 4
    (low, high) = FULL_KEY_RANGE.split(2)
    assert (
        len({segment_digest(SegmentId(0, 0), range_, 0, 6, []).digest for range_ in (FULL_KEY_RANGE, low, high)}) == 3
    )


def test_a_stream_is_the_sum_of_its_segments_that_hold_events() -> None:
    held = segment_digest(SegmentId(0, 1), FULL_KEY_RANGE, 0, 6, blocks(BATCH))
    empty = segment_digest(SegmentId(0, 0), FULL_KEY_RANGE, 3, 3, [])
    digest = StreamDigest.of(RAW, [held, empty])
    assert digest == StreamDigest.of(RAW, [empty, held]) == StreamDigest.of(RAW, [held])
    assert digest.segments == (held,)
    assert digest.events == 6
    assert digest != StreamDigest.of(RAW, [SegmentPart(*held[:4], "0" * 64)])


def test_it_is_this_one_forever() -> None:
    """The value is part of the format of archives."""
    part = segment_digest(SegmentId(0, 0), FULL_KEY_RANGE, BLOCK_ROWS - 4, BLOCK_ROWS + 2, blocks(BATCH))
    assert StreamDigest.of(RAW, [part]).value == "023f7c0e60efc818fbe6b99df91832abff245a16d34907269082c6478980aff0"


def test_it_can_be_worked_out_from_its_description_alone() -> None:
    """As `docs/how-to/archives.md` tells it, value by value."""
    texts, appended = ["a", None, "ccc"], [7, 7, 9]
    sums = BlockSums(2)
    sums.add(pa.record_batch({"text": texts}), pa.array(appended, TIME_TYPE))

    def number(value: int) -> bytes:
        return value.to_bytes(8, "little")

    def column(name: str, kind: str, valid: bytes, lengths: bytes, data: bytes) -> bytes:
        parts = b"".join(hashlib.sha256(each).digest() for each in (valid, lengths, data))
        told = hashlib.sha256(f"{kind}\n".encode() + number(3) + parts).digest()
        return number(len(name)) + name.encode() + told

    times = column("_appended", "timestamp[us, tz=UTC]", b"\1\1\1", b"", b"".join(map(number, appended)))
    held = column("text", "string", b"\1\0\1", number(1) + number(0) + number(3), b"accc")
    block = hashlib.sha256(b"anabranch block 1\n" + number(2) + number(5) + times + held).digest()
    assert sums.blocks() == [block]
    segment = hashlib.sha256(b"anabranch segment 1\n1.4 0 10000000000000000 2 5\n" + block)
    part = segment_digest(SegmentId(1, 4), FULL_KEY_RANGE, 2, 5, [block])
    assert part.digest == segment.hexdigest()
    stream = hashlib.sha256(b'anabranch stream 1\n["key","time",true]\n' + segment.digest())
    assert StreamDigest.of(RAW, [part]).value == stream.hexdigest()
