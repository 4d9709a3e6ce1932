"""A column of keys is routed as its keys would be one by one, and refused for the same reasons."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import limits
from anabranch.core.routing import key_points, key_text, point_of
from anabranch.errors import InvalidKey, TooLarge

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), _TEXTS)), st.sampled_from([pa.string(), pa.large_string()]))
def test_text_keys_have_the_points_of_their_texts(keys: list[str | None], kind: pa.DataType) -> None:
    found = key_points(pa.array(keys, kind), spread_from=7).per_row().tolist()
    assert [point for point, key in zip(found, keys, strict=True) if key is not None] == [
        point_of(key) for key in keys if key is not None
    ]


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_other_keys_have_the_points_of_their_canonical_texts(keys: list[int]) -> None:
    found = key_points(pa.array(keys, pa.int64()), spread_from=0).per_row().tolist()
    assert found == [point_of(key_text(key) or "") for key in keys]


def test_a_key_over_the_limit_is_refused_though_it_stands_in_a_column() -> None:
    keys = ["a", "ä" * (limits.KEY_BYTES_MAX // 2), "b"]
    assert len(key_points(pa.array(keys), spread_from=0)) == 3
    with pytest.raises(TooLarge):
        key_points(pa.array([*keys, "ä" * (limits.KEY_BYTES_MAX // 2) + "c"]), spread_from=0)


def test_bytes_that_are_no_text_are_no_key() -> None:
    wrong = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    with pytest.raises(InvalidKey):
        key_points(wrong, spread_from=0)
