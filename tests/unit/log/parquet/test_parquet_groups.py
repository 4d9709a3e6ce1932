"""Row groups in another file: the same rows, in the same pages, with statistics and indexes that fit."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import CorruptBlob
from anabranch.log.parquet.builder import ParquetBuilder
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.parquet.row_groups import GroupedFile, GroupsBuilder
from anabranch.log.parquet.thrift import read_struct, write_struct
from anabranch.model.append import TimeBounds
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import LogId, Micros, StreamId

COLUMNS = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("list", pa.list_(pa.int32())),
        ("pair", pa.struct([("a", pa.float64()), ("b", pa.bool_())])),
    ]
)


def rows_of(first: int, stop: int) -> pa.RecordBatch:
    rows = [
        {
            "n": i,
            "text": None if i % 7 == 0 else f"text {i % 5}",
            "list": [i] * (i % 3),
            "pair": {"a": i / 2, "b": i % 2 == 0},
        }
        for i in range(first, stop)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=COLUMNS)


def built(counts: list[int], *, first: int = 0, group_rows: int = 10) -> tuple[pa.Buffer, list[int]]:
    """A file of parts of so many rows, and the first value of each."""
    builder, at, firsts = ParquetBuilder(COLUMNS, group_rows=group_rows), first, []
    for log, count in enumerate(counts, 1):
        builder.begin(StreamId(7), LogId(log), 0, 1)
        builder.write(rows_of(at, at + count), pa.array(range(at, at + count), TIME_TYPE))
        builder.end()
        firsts.append(at)
        at += count
    return builder.finish().data, firsts


def whole(chunks: list[bytes]) -> pa.Buffer:
    return pa.py_buffer(b"".join(chunks))


def read(data: pa.Buffer, row: int, rows: int) -> list[Any]:
    batches = ParquetReader("history/x", data).read(row, rows, COLUMNS)
    return [(each, at.value) for batch, times in batches for each, at in zip(batch.to_pylist(), times, strict=True)]


@settings(max_examples=20, deadline=None)
@given(
    counts=st.lists(st.integers(1, 35), min_size=1, max_size=5),
    others=st.lists(st.integers(1, 35), min_size=1, max_size=3),
    picks=st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=1, max_size=6),
)
def test_parts_of_several_files_become_one(counts: list[int], others: list[int], picks: list[tuple[bool, int]]) -> None:
    files = []
    for each, first in ((counts, 0), (others, 1_000)):
        data, firsts = built(each, first=first)
        files.append((GroupedFile("history/x", data), each, firsts, ParquetReader("history/x", data).parts()))
    builder = GroupsBuilder(files[0][0])
    expected, rows = [], 0
    for other, index in picks:
        file, sizes, firsts, parts = files[other]
        index %= len(sizes)
        groups = file.groups_of(parts[index]["row"], sizes[index])
        assert groups is not None and len(groups) == parts[index]["groups"]
        assert builder.accepts(file)
        assert builder.add(file, groups, {"log": index}) == rows
        expected.append((rows, sizes[index], firsts[index]))
        rows += sizes[index]
    data = whole(builder.finish())
    reader = ParquetReader("history/x", data)
    assert reader.rows == rows
    assert [(part["row"], part["rows"], part["log"]) for part in reader.parts()] == [
        (row, count, index % len(files[other][1]))
        for (row, count, _), (other, index) in zip(expected, picks, strict=True)
    ]
    for (row, count, first), part in zip(expected, reader.parts(), strict=True):
        times = [
            (body, at)
            for body, at in zip(rows_of(first, first + count).to_pylist(), range(first, first + count), strict=True)
        ]
        assert read(data, row, count) == times
        groups = range(part["group"], part["group"] + part["groups"])
        assert reader.bounds(list(groups), "_appended") == TimeBounds(Micros(first), Micros(first + count - 1))
    for group in range(reader.metadata.num_row_groups):
        for column in range(reader.metadata.num_columns):
            chunk = reader.metadata.row_group(group).column(column)
            assert chunk.has_offset_index and chunk.has_column_index == (chunk.statistics is not None)


def test_an_index_of_pages_leads_to_pages() -> None:
    """pyarrow reads none; so each place it names is looked at: a header of a page of just that size begins there."""
    data, _ = built([300, 500], group_rows=1_000)
    file = GroupedFile("history/x", data)
    builder = GroupsBuilder(file)
    builder.add(file, [1], {})
    moved = whole(builder.finish())
    found = 0
    for chunk in GroupedFile("history/y", moved).groups[0][1][1][1]:
        index, _ = read_struct(moved.slice(chunk[4][1], chunk[5][1]).to_pybytes())
        for page in index[1][1][1]:
            place, size = page[1][1], page[2][1]
            header, length = read_struct(moved.slice(place, size).to_pybytes())
            assert length + header[3][1] == size and header[1][1] == 0  # its compressed size; a page of data
            found += 1
    assert found >= 6


def test_rows_within_a_group_are_no_groups() -> None:
    file = GroupedFile("history/x", built([25, 8])[0])
    assert file.groups_of(0, 25) == range(3)
    assert file.groups_of(25, 8) == range(3, 4)
    assert file.groups_of(10, 10) == range(1, 2)
    for row, rows in ((0, 24), (5, 20), (25, 0), (33, 1)):
        assert file.groups_of(row, rows) is None


def test_files_of_other_columns_are_distinguished() -> None:
    builder = ParquetBuilder(pa.schema([("n", pa.int32())]))
    builder.begin(StreamId(7), LogId(1), 0, 1)
    builder.write(pa.record_batch({"n": pa.array([1], pa.int32())}), pa.array([0], TIME_TYPE))
    builder.end()
    other = GroupedFile("history/y", builder.finish().data)
    assert not GroupsBuilder(GroupedFile("history/x", built([5])[0])).accepts(other)


def copied(data: pa.Buffer) -> None:
    file = GroupedFile("history/x", data)
    GroupsBuilder(file).add(file, [0], {})


def test_what_is_no_file_is_named() -> None:
    data = built([25])[0].to_pybytes()
    for wrong in (b"PAR1", b"x" * 50, data[-40:], data[:-8] + struct.pack("<I", 5) + b"PAR1"):
        with pytest.raises(CorruptBlob, match="history/x"):
            copied(pa.py_buffer(wrong))


def test_footers_are_written_as_they_were_read() -> None:
    data = built([25, 40])[0].to_pybytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    struct_, end = read_struct(footer)
    assert end == length
    assert write_struct(struct_) == footer
    assert pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows == struct_[3][1]
