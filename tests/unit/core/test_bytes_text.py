"""Bytes as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.bytes_text import bytes_from_text, bytes_to_text


@given(st.binary() | st.text().map(str.encode) | st.binary().map(b"base64:".__add__))
def test_any_bytes_are_read_back(data: bytes) -> None:
    assert bytes_from_text(bytes_to_text(data)) == data


def test_text_stays_readable() -> None:
    assert bytes_to_text("grün".encode()) == "grün"
    assert bytes_to_text(b"\xff") == "base64:/w=="
    assert bytes_to_text(b"base64:x") == "base64:YmFzZTY0Ong="
    with pytest.raises(ValueError, match="'base64:x' is not base64 after 'base64:'"):
        bytes_from_text("base64:x")
