"""Parquet files whose parts get other names: the footer changes, the pages do not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import CorruptBlob
from anabranch.log.parquet.builder import ParquetBuilder
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.parquet.replace_parts import with_parts
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import LogId, StreamId

COLUMNS = pa.schema([("n", pa.int64())])


def built(rows: int, log: int) -> pa.Buffer:
    builder = ParquetBuilder(COLUMNS, group_rows=100)
    builder.begin(StreamId(7), LogId(log), 5, 1)
    builder.write(pa.record_batch([pa.array(range(rows))], schema=COLUMNS), pa.array([0] * rows, TIME_TYPE))
    builder.end()
    return builder.finish().data


def joined(chunks: list[pa.Buffer | bytes]) -> pa.Buffer:
    return pa.py_buffer(b"".join(bytes(memoryview(chunk)) for chunk in chunks))


@pytest.mark.parametrize("log", [1, 12_345_678_901_234])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_parts_of_any_length_take_the_place_of_others(log: int, count: int) -> None:
    data = built(250, 12)
    (part,) = ParquetReader("history/x", data).parts()
    parts = [
        {**part, "log": log + n, "stream": f"{n:016x}"} for n in range(count)
    ]  # lengths of one, two and three bytes
    changed = joined(with_parts("history/x", data, parts))
    reader = ParquetReader("history/y", changed)
    assert reader.parts() == parts
    rows: list[Any] = []
    for batch, _ in reader.read(0, 250, COLUMNS):
        rows += batch.column("n").to_pylist()
    assert rows == [*range(250)]
    assert pq.ParquetFile(pa.BufferReader(changed)).schema_arrow.names == ["n", "_appended"]
    assert joined(with_parts("history/y", changed, [part])).equals(data)


def test_what_is_no_file_of_a_store_is_named() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1]}), sink)
    data = built(10, 1)
    for wrong in (
        pa.py_buffer(b"PAR1"),
        pa.py_buffer(b"x" * 100),
        sink.getvalue(),
        pa.py_buffer(data.to_pybytes()[-60:]),
    ):
        with pytest.raises(CorruptBlob, match="history/x"):
            with_parts("history/x", wrong, [])
