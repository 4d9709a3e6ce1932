"""Attached Parquet files whose columns have other types than the stream's: Spark's own reader reads only those that it
reads as the store does. That is decided by each file's footer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.spark import read
from tests.parameters import rest_is_slow
from tests.spark.streams import by_place, new_store

pytestmark = pytest.mark.spark

_AT = datetime(2026, 7, 1, 12, 0, 0, 123_456, tzinfo=UTC)
_LOCAL = _AT.replace(tzinfo=None)
# The type in the file, two values, and whether Spark's own reader may read the file.
COLUMNS: dict[str, tuple[pa.DataType, list[Any], bool]] = {
    "int8": (pa.int8(), [-1, 127], True),
    "int32": (pa.int32(), [-1, 1 << 30], True),
    "uint8": (pa.uint8(), [0, 255], True),
    "uint32": (pa.uint32(), [0, (1 << 32) - 1], True),
    "float": (pa.float32(), [0.5, -1.25], True),
    "bool": (pa.bool_(), [True, False], True),
    "text": (pa.large_string(), ["ä", ""], True),
    "words": (pa.dictionary(pa.int32(), pa.string()), ["a", "a"], True),
    "bytes": (pa.large_binary(), [b"\x00", b""], True),
    "fixed": (pa.binary(3), [b"abc", b"\x00\x01\x02"], False),
    "day": (pa.date32(), [date(2026, 7, 1), date(1969, 1, 1)], True),
    "price": (pa.decimal128(12, 2), [Decimal("0.10"), Decimal("-3.00")], True),
    "at": (pa.timestamp("us", "UTC"), [_AT, _AT], True),
    "abroad": (pa.timestamp("us", "Europe/Berlin"), [_AT, _AT], False),
    "millis": (pa.timestamp("ms", "UTC"), [_AT.replace(microsecond=1_000), _AT.replace(microsecond=2_000)], False),
    "nanos": (pa.timestamp("ns", "UTC"), [1_700_000_000_000_000_000, 1_700_000_000_000_001_000], False),
    "local": (pa.timestamp("us"), [_LOCAL, _LOCAL], True),
    "local_nanos": (pa.timestamp("ns"), [1_700_000_000_000_000_000, 0], False),
    "list": (pa.large_list(pa.int32()), [[1, None], []], True),
    "pair": (pa.list_(pa.int32(), 2), [[1, 2], [3, 4]], False),
    "times": (pa.list_(pa.timestamp("ns", "UTC")), [[1_700_000_000_000_000_000], []], False),
    "inner": (pa.struct([("t", pa.timestamp("ms", "UTC")), ("n", pa.int64())]), [{"t": 5, "n": 1}, None], False),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ab.Store]:
    with new_store(tmp_path_factory.mktemp("footers")) as made:
        yield made


def scans(frame: DataFrame) -> int:
    return str(frame._jdf.queryExecution().executedPlan().toString()).count("FileScan parquet")


@pytest.mark.parametrize("column", rest_is_slow(COLUMNS, plain=5))
def test_a_column_is_read_as_the_store_reads_it(
    spark: SparkSession, store: ab.Store, tmp_path: Path, column: str
) -> None:
    kind, values, native = COLUMNS[column]
    rows = pa.table({"v": pa.array([*values, None], kind), "n": [1, 2, 3]})
    (tmp_path / "data").mkdir()
    pq.write_table(rows, tmp_path / "data" / "part.parquet", version="2.6")
    store.archives.attach(tmp_path / "data", f"s/{column}")
    with store.reader(f"s/{column}") as reader:
        expected = pa.Table.from_batches(reader.batches(), reader.schema)
    assert expected.num_rows == 3
    frame = read(spark, store, f"s/{column}")
    assert by_place(frame).cast(expected.schema).equals(expected)
    assert scans(frame) == native
