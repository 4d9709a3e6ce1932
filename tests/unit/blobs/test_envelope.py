"""Sealed blobs: every box lies where it was sealed for, whatever its neighbours weigh, and opens nowhere else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.blobs.encryption_contexts import blob_context, inline_context
from anabranch.blobs.envelope import DataKey, Envelope
from anabranch.blobs.layout import ALIGN, FramedBlob, frame, read_index
from anabranch.core.checksum import checksum
from anabranch.errors import CorruptBlob, FormatTooNew
from anabranch.model.ids import LogId
from anabranch.runtime.ids import SystemIds

KEY = "commits/x"


class OneKey:
    """The keys of a store that has one."""

    current = DataKey("00112233445566ff", bytes(range(32)), "master", b"wrapped")

    def find(self, key_id: str) -> DataKey | None:
        return self.current if key_id == self.current.id else None


SEALER = Envelope(OneKey(), SystemIds())


def framed(messages: list[bytes]) -> tuple[FramedBlob, bytes]:
    parts: list[dict[str, Any]] = [{"log": i, "checksum": 0} for i in range(len(messages))]
    made = frame({"commit": "c"}, parts, [pa.py_buffer(each) for each in messages], key=KEY, sealer=SEALER)
    return made, b"".join(bytes(memoryview(chunk)) for chunk in made.chunks)


@given(st.lists(st.binary(max_size=200), max_size=40))
def test_what_was_sealed_opens_at_its_place(messages: list[bytes]) -> None:
    made, blob = framed(messages)
    assert made.size == len(blob)
    whole = pa.py_buffer(blob)
    index = read_index(KEY, whole)
    assert index["key"] == {"id": OneKey.current.id, "master": "master", "wrapped": "d3JhcHBlZA=="}
    places = [(part["at"], part["length"], part["checksum"]) for part in index["parts"]]
    assert places == list(zip(made.offsets, made.lengths, made.checksums, strict=True))
    for (at, length, digest), message in zip(places, messages, strict=True):
        box = whole.slice(at, length)
        assert at % ALIGN == 0 and checksum(box) == digest
        assert SEALER.unseal(box, blob_context(KEY, at), KEY).to_pybytes() == message


def test_a_box_opens_at_no_other_place() -> None:
    made, blob = framed([b"one", b"two"])
    (one, other), length = made.offsets, made.lengths[0]
    box = pa.py_buffer(blob).slice(one, length)
    for place in (blob_context(KEY, other), blob_context("commits/y", one), inline_context(LogId(1)), b""):
        with pytest.raises(CorruptBlob, match="were written at another place"):
            SEALER.unseal(box, place, KEY)
    inlined = SEALER.seal(pa.py_buffer(b"one"), inline_context(LogId(1)))
    assert SEALER.unseal(inlined, inline_context(LogId(1)), KEY).to_pybytes() == b"one"
    with pytest.raises(CorruptBlob):
        SEALER.unseal(inlined, inline_context(LogId(11)), KEY)


def test_every_flipped_byte_of_a_box_is_noticed() -> None:
    box = SEALER.seal(pa.py_buffer(b"a message"), b"here").to_pybytes()
    for at in range(len(box)):
        for bit in (0x01, 0x80):
            damaged = bytearray(box)
            damaged[at] ^= bit
            with pytest.raises(CorruptBlob):
                SEALER.unseal(pa.py_buffer(bytes(damaged)), b"here", KEY)
    for size in range(len(box)):
        with pytest.raises(CorruptBlob):
            SEALER.unseal(pa.py_buffer(box[:size]), b"here", KEY)


def test_every_flipped_byte_of_a_sealed_blob_is_noticed() -> None:
    _, blob = framed([b"first message", b""])
    for at in range(len(blob)):
        damaged = bytearray(blob)
        damaged[at] ^= 0x01
        with pytest.raises((CorruptBlob, FormatTooNew)):
            read_index(KEY, pa.py_buffer(bytes(damaged)))


def test_plain_bytes_and_unknown_keys_are_reported() -> None:
    with pytest.raises(CorruptBlob, match="these bytes are not"):
        SEALER.unseal(pa.py_buffer(b"\xff" * 100), b"here", KEY)
    with pytest.raises(CorruptBlob, match="is not in the catalog"):
        SEALER.unseal(pa.py_buffer(b"\x01" * 100), b"here", KEY)
