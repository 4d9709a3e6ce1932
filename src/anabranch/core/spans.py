"""Span arithmetic: where the events of a segment are in logs, and back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from anabranch.errors import CorruptCatalog
from anabranch.model.stream import Span


def locate(spans: Sequence[Span], start: int, stop: int) -> list[tuple[Span, int, int]]:
    """The log ranges that hold the offsets `start <= offset < stop` of a segment, in offset order.

    `spans` are those of one segment, in offset order. Each entry is a span with the half-open positions in its log,
    never empty. Offsets that no span covers are left out.
    """
    found = []
    first = max(bisect_right(spans, start, key=lambda span: span.offset) - 1, 0)
    for span in spans[first:]:
        if span.offset >= stop:
            break
        shift = span.start - span.offset
        low, high = max(start, span.offset) + shift, stop + shift
        if span.stop is not None:
            high = min(high, span.stop)
        if low < high:
            found.append((span, low, high))
    return found


def offset_of(span: Span, position: int) -> int:
    """The segment's offset of a position in the span's log; the inverse of `locate`."""
    return span.offset + position - span.start


def join_spans(spans: Sequence[Span], more: Sequence[Span]) -> tuple[Span, ...]:
    """Closed spans of one segment, followed by `more`. A span that continues the previous one in the same log is merged
    with it, so data added in small steps ends up as few spans as data added at once."""
    found = list(spans)
    for span in more:
        last = found[-1] if found else None
        if last is not None and (last.log, last.stop) == (span.log, span.start):
            if (expected := offset_of(last, span.start)) != span.offset:
                raise CorruptCatalog(
                    f"segment {span.segment} continues in log {span.log} at offset {expected}, but its next span begins at "
                    f"{span.offset}",
                    "spans",
                )
            found[-1] = replace(last, stop=span.stop)
        else:
            found.append(span)
    return tuple(found)
