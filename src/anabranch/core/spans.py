"""Span arithmetic: where the events of a segment lie in logs, and back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from anabranch.model.stream import Span


def locate(spans: Sequence[Span], start: int, stop: int) -> list[tuple[Span, int, int]]:
    """The log ranges that hold the offsets `start <= offset < stop` of a segment, in offset order.

    `spans` are those of one segment, in offset order. Each entry is a span with the half-open positions in its log,
    never empty. The part of a range that no span covers is left out.
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
    """The segment's offset of a position in the span's log: the inverse of `locate`."""
    return span.offset + position - span.start


def joined(spans: Sequence[Span], more: Sequence[Span]) -> tuple[Span, ...]:
    """Closed spans of one segment with those that follow them. Where one goes on in its log just where the one before
    ends, they become one; so what is added bit by bit is as many spans as what is added at once."""
    found = list(spans)
    for span in more:
        last = found[-1] if found else None
        if last is not None and (last.log, last.stop) == (span.log, span.start):
            assert offset_of(last, span.start) == span.offset
            found[-1] = replace(last, stop=span.stop)
        else:
            found.append(span)
    return tuple(found)
