"""The headers `Producer-Id`, `Producer-Epoch` and `Producer-Seq`, which number the requests of a producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.server.events.producers import Numbered, ProducedBatch
from anabranch.server.load.stream_loads import Sampled
from anabranch.writing.acknowledgement import EventRange

_NAMES: Final = ("producer-id", "producer-epoch", "producer-seq")


def numbered(headers: Headers) -> Numbered | None:
    """What the producer headers say; None if there are none. Raises InvalidArgument if some are missing or wrong."""
    found = [headers.get(name) for name in _NAMES]
    if found == [None, None, None]:
        return None
    name, epoch, sequence = found
    if not name or epoch is None or sequence is None:
        raise InvalidArgument("pass Producer-Id, Producer-Epoch and Producer-Seq together, or none of them")
    return Numbered(name, _number("Producer-Epoch", epoch), _number("Producer-Seq", sequence))


def producer_answer(number: Numbered, produced: ProducedBatch) -> bytes:
    """`{"events": N, "ranges": […], "sequence": N, "duplicate": …}`, and `sampled` as in `sampled_json`; of a repeat whose
    first answer is no longer known, `events` is null."""
    result = produced.result
    found: dict[str, Any] = {"events": result.events, "ranges": ranges_json(result.ranges)}
    found |= {"sequence": number.sequence, "duplicate": result.duplicate}
    return msgspec.json.encode(found | sampled_json(produced.sampled))


def ranges_json(ranges: Sequence[EventRange]) -> list[dict[str, Any]]:
    """Where appended events are."""
    return [{"segment": str(each.segment), "start": each.start, "stop": each.stop} for each in ranges]


def sampled_json(sampled: Sampled | None) -> dict[str, Any]:
    """`{"sampled": {"of": N, "weight": W, "rows": […]}}`: the rows of the request that were kept, of N, each for so many
    events; without the rows of a large request. Nothing if all were kept."""
    if sampled is None:
        return {}
    found: dict[str, Any] = {"of": sampled.events, "weight": sampled.weight}
    if sampled.events <= limits.HTTP_POINTERS_MAX:
        found["rows"] = sampled.rows.tolist()
    return {"sampled": found}


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgument(f"expected {name} as an integer of at least 0, got '{text:.50}'")
    return int(text)
