"""The layout of tier-1 blobs: what was framed is read back, and no flipped byte goes unnoticed."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.blobs.keys import begun_at, commit_key, history_key
from anabranch.blobs.layout import ALIGN, MAGIC, FramedBlob, frame, read_index
from anabranch.errors import CorruptBlob, FormatTooNew
from anabranch.model.ids import Micros

KEY = "commits/x"
INDEX = {"commit": "c", "begun_at": 5, "schemas": ["00"]}


def whole(framed: FramedBlob) -> bytes:
    return b"".join(bytes(memoryview(chunk)) for chunk in framed.chunks)


def framed(messages: list[bytes]) -> tuple[FramedBlob, bytes]:
    parts: list[dict[str, Any]] = [{"log": i, "checksum": -i} for i in range(len(messages))]
    made = frame(INDEX, parts, [pa.py_buffer(message) for message in messages])
    return made, whole(made)


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_what_was_framed_is_found_at_its_place(messages: list[bytes]) -> None:
    made, blob = framed(messages)
    assert made.size == len(blob)
    index = read_index(KEY, pa.py_buffer(blob))
    assert {name: index[name] for name in INDEX} == INDEX
    assert [part["log"] for part in index["parts"]] == list(range(len(messages)))
    for part, message, offset in zip(index["parts"], messages, made.offsets, strict=True):
        assert part["at"] == offset and offset % ALIGN == 0
        assert blob[offset : offset + part["length"]] == message


def test_every_flipped_byte_is_noticed() -> None:
    _, blob = framed([b"first message", b"", bytes(range(100))])
    for at in range(len(blob)):
        for bit in (0x01, 0x80):
            damaged = bytearray(blob)
            damaged[at] ^= bit
            with pytest.raises((CorruptBlob, FormatTooNew)):
                read_index(KEY, pa.py_buffer(bytes(damaged)))


def test_every_lost_or_added_byte_is_noticed() -> None:
    _, blob = framed([b"message"])
    for size in range(len(blob)):
        with pytest.raises(CorruptBlob) as caught:
            read_index(KEY, pa.py_buffer(blob[:size]))
        assert caught.value.key == KEY
    with pytest.raises(CorruptBlob, match=f"not {len(blob)}"):
        read_index(KEY, pa.py_buffer(blob + b"\x00"))


def test_a_foreign_file_is_no_blob_of_ours() -> None:
    with pytest.raises(CorruptBlob, match="does not begin with the header of a blob"):
        read_index(KEY, pa.py_buffer(b"PAR1" + bytes(60)))


@pytest.mark.parametrize(("at", "what"), [(8, "version"), (10, "encoding"), (11, "cipher")])
def test_a_newer_layout_is_said_to_be_too_new(at: int, what: str) -> None:
    _, blob = framed([b"message"])
    newer = bytearray(blob)
    newer[at] += 9
    with pytest.raises(FormatTooNew, match="upgrade"):
        read_index(KEY, pa.py_buffer(bytes(newer)))


def test_the_header_is_what_the_formats_page_says() -> None:
    _, blob = framed([b"message"])
    magic, version, encoding, cipher, length, _, size = struct.unpack("<8sHBBIQQ", blob[:32])
    assert (magic, version, encoding, cipher, size) == (b"ANABRNCH", 1, 1, 0, len(blob))
    assert MAGIC == b"ANABRNCH"
    assert blob[32:33] == b"{" and blob[32 + length - 1 : 32 + length] == b"}"


@given(st.integers(0, 1 << 62), st.integers(0, (1 << 96) - 1))
def test_a_key_shows_when_its_blob_was_begun(now: int, token: int) -> None:
    for made in (commit_key, history_key):
        assert begun_at(made(Micros(now), f"{token:024x}")) == now


@given(st.lists(st.integers(0, 1 << 62), min_size=2, max_size=2))
def test_keys_sort_by_time(times: list[int]) -> None:
    earlier, later = sorted(times)
    if earlier < later:
        assert commit_key(Micros(earlier), "f" * 24) < commit_key(Micros(later), "0" * 24)


@pytest.mark.parametrize("key", ["", "commits/", "commits/x.arrow", "history/" + "0" * 16 + "-" + "0" * 24 + ".arrow"])
def test_a_key_that_is_not_ours_has_no_time(key: str) -> None:
    assert begun_at(key) is None
