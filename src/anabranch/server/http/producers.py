"""The headers `Producer-Id`, `Producer-Epoch` and `Producer-Seq`, which number the requests of a producer."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.datastructures import Headers

from anabranch.errors import InvalidArgument
from anabranch.server.events.producers import Numbered
from anabranch.writing.producer import ProducerResult

_NAMES: Final = ("producer-id", "producer-epoch", "producer-seq")


def numbered(headers: Headers) -> Numbered | None:
    """What the producer headers say; None if there are none. Raises InvalidArgument if some are missing or wrong."""
    found = [headers.get(name) for name in _NAMES]
    if found == [None, None, None]:
        return None
    name, epoch, sequence = found
    if not name or epoch is None or sequence is None:
        raise InvalidArgument("Producer-Id, Producer-Epoch and Producer-Seq come together")
    return Numbered(name, _number("Producer-Epoch", epoch), _number("Producer-Seq", sequence))


def producer_answer(number: Numbered, result: ProducerResult) -> bytes:
    """`{"events": N, "ranges": […], "sequence": N, "duplicate": …}`; of a repeat whose first answer is no longer known,
    `events` is null."""
    ranges = [{"segment": str(each.segment), "start": each.start, "stop": each.stop} for each in result.ranges]
    found: dict[str, Any] = {"events": result.events, "ranges": ranges}
    return msgspec.json.encode({**found, "sequence": number.sequence, "duplicate": result.duplicate})


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgument(f"{name} is a whole number from 0 on, not '{text:.50}'")
    return int(text)
