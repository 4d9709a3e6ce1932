"""Types that widen when streams are joined."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.codec import widen
from anabranch.core.type_widening import wider
from anabranch.errors import SchemaMismatch

KINDS = [
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal128(5, 2), pa.decimal128(20, 0), pa.decimal128(38, 10)),
    *(pa.string(), pa.binary(), pa.bool_(), pa.date32(), pa.timestamp("us")),
    *(pa.list_(pa.int8()), pa.list_(pa.float64()), pa.list_(pa.string())),
]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int8(), pa.uint8(), pa.int16()),
        (pa.uint32(), pa.int8(), pa.int64()),
        (pa.uint64(), pa.int64(), None),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int64(), pa.float64(), None),
        (pa.decimal128(5, 2), pa.decimal128(6, 0), pa.decimal128(8, 2)),
        (pa.decimal128(5, 2), pa.int32(), pa.decimal128(12, 2)),
        (pa.decimal128(38, 10), pa.int64(), pa.decimal128(38, 10)),
        (pa.decimal128(38, 20), pa.int64(), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.int32()), pa.int32(), None),
        (pa.string(), pa.binary(), None),
        (pa.bool_(), pa.int8(), None),
        (pa.date32(), pa.timestamp("us"), None),
    ],
)
def test_the_wider_of_two_types_holds_both_or_there_is_none(
    one: pa.DataType, other: pa.DataType, both: pa.DataType | None
) -> None:
    assert wider(one, other) == wider(other, one) == both


@pytest.mark.parametrize("one", KINDS, ids=str)
def test_the_wider_of_two_types_is_wider_than_either(one: pa.DataType) -> None:
    assert wider(one, one) == one
    for other in KINDS:
        both = wider(one, other)
        assert both == wider(other, one)
        assert both is None or wider(both, one) == wider(both, other) == both


@settings(max_examples=40)
@given(st.sampled_from(KINDS[:11]), st.sampled_from(KINDS[:14]), st.integers(-(1 << 63), (1 << 64) - 1))
def test_no_value_changes_when_it_is_widened(one: pa.DataType, other: pa.DataType, value: int) -> None:
    both = wider(one, other)
    if both is None:
        return
    info = (1 << one.bit_width) - 1
    if pa.types.is_integer(one):
        value = value & info if pa.types.is_unsigned_integer(one) else (value & info) - (info + 1) // 2
    else:
        value = value % 2048
    batch = pa.record_batch([pa.array([value, None], one)], names=["n"])
    widened = widen(batch, pa.schema([("n", both)]))
    assert widened.schema.field("n").type == both
    assert [None if each is None else int(each) for each in widened.column("n").to_pylist()] == [value, None]


def test_who_wants_the_narrow_type_gets_what_fits_and_an_error_for_what_does_not() -> None:
    narrow = pa.schema([("n", pa.int32())])
    assert widen(pa.record_batch([pa.array([7])], names=["n"]), narrow).column("n").to_pylist() == [7]
    with pytest.raises(SchemaMismatch, match=r"column 'n' holds int64 that does not fit int32.*open it again"):
        widen(pa.record_batch([pa.array([1 << 40])], names=["n"]), narrow)
