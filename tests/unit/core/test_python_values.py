"""The values of Arrow columns as Python has them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pytest

from anabranch.core.python_values import python_values

FAR = 7_981_000_000_000_000  # µs; in the year 2222
BEYOND = 300_000_000_000_000_000  # µs; in the year 11476


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.time64("ns"), 123_456_789, "00:00:00.123456789"),
        (pa.time64("ns"), 123_456_000, time(0, 0, 0, 123_456)),
        (pa.duration("ns"), 1_001, "PT0.000001001S"),
        (pa.duration("ns"), -86_400_000_000_001, "-P1DT0.000000001S"),
        (pa.duration("ns"), 1_000, timedelta(microseconds=1)),
        (pa.duration("s"), 1 << 62, "P53375995583650DT27904S"),
        (pa.timestamp("ns"), 1, "1970-01-01T00:00:00.000000001"),
        (pa.timestamp("us", "UTC"), FAR, datetime(2222, 11, 28, 16, 26, 40, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), BEYOND, "11476-08-15T05:20:00.000000Z"),
        (pa.timestamp("us"), BEYOND, "11476-08-15T05:20:00.000000"),
        (pa.timestamp("us"), 1 << 62, 1 << 62),
        (pa.date32(), 10**7, "29349-01-26"),
        (pa.date32(), 11_248_738, 11_248_738),
        (pa.date32(), 1, date(1970, 1, 2)),
    ],
)
def test_what_python_can_not_hold_is_text(kind: pa.DataType, value: int, expected: Any) -> None:
    column = pa.array([None, value], pa.int64()).cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    assert python_values(column) == [None, expected]
    assert python_values(pa.array([None, [value, None]], pa.list_(kind))) == [None, [expected, None]]
    pairs = pa.array([None, [("a", value)]], pa.map_(pa.string(), kind))
    assert python_values(pairs) == [None, [("a", expected)]]
    structs = pa.array([None, {"a": value, "b": "text"}], pa.struct([("a", kind), ("b", pa.string())]))
    assert python_values(structs.slice(1)) == [{"a": expected, "b": "text"}]
