"""Plans which short spans are rewritten as one log, and maps other spans of the same bytes to it.

A copy of a stream that was written to has one more span for each of its open segments, so a copy of a copy of a copy
has many. That only costs time: each span is another log to look up, and another small part of a file to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from anabranch import limits
from anabranch.model.ids import LogId
from anabranch.model.stream import Span


@dataclass(frozen=True, slots=True)
class FlattenPolicy:
    """At least `spans_min` adjacent spans of at most `span_bytes_max` logical bytes each become one log, of at most
    `bytes_max` in total."""

    spans_min: int = limits.FLATTEN_SPANS_MIN
    span_bytes_max: int = limits.FLATTEN_SPAN_BYTES_MAX
    bytes_max: int = limits.PARQUET_BYTES_MAX


class FlattenedRange(NamedTuple):
    """The positions `start <= position < stop` of `log` are those from `at` on in a new log."""

    log: LogId
    start: int
    stop: int
    at: int


def short_span_runs(
    spans: Sequence[Span], weigh: Callable[[Span], int], policy: FlattenPolicy
) -> list[tuple[Span, ...]]:
    """The groups of adjacent spans of one segment that are worth rewriting together. Spans that follow their log are
    left out."""
    found: list[tuple[Span, ...]] = []
    run: list[Span] = []
    size = 0
    for span in spans:
        weight = policy.span_bytes_max + 1 if span.stop is None else weigh(span)
        if run and (weight > policy.span_bytes_max or size + weight > policy.bytes_max):
            found.append(tuple(run))
            run, size = [], 0
        if weight <= policy.span_bytes_max:
            run.append(span)
            size += weight
    found.append(tuple(run))
    return [run for run in found if len(run) >= policy.spans_min]


def flattened_ranges(run: Sequence[Span]) -> tuple[FlattenedRange, ...]:
    """Maps the positions that a run views to the new log, which begins with the first of them."""
    first = run[0].offset
    assert all(span.stop is not None for span in run)
    return tuple(
        FlattenedRange(span.log, span.start, span.stop, span.offset - first) for span in run if span.stop is not None
    )


def remap_spans(spans: Sequence[Span], moved: Iterable[FlattenedRange], log: LogId) -> tuple[Span, ...] | None:
    """The spans of a segment, with those that view only moved positions pointing to the new log, and adjacent ones in
    one log merged. None if nothing changes."""
    by_log: dict[LogId, list[FlattenedRange]] = {}
    for each in moved:
        by_log.setdefault(each.log, []).append(each)
    fresh: list[Span] = []
    for span in _full(spans):
        placed = _placed(span, by_log.get(span.log, ()), log)
        last = fresh[-1] if fresh else None
        if last is not None and last.stop is not None and (last.log, last.stop) == (placed.log, placed.start):
            fresh[-1] = replace(last, stop=placed.stop)
        else:
            fresh.append(placed)
    return None if fresh == list(spans) else tuple(fresh)


def _full(spans: Sequence[Span]) -> Sequence[Span]:
    """The spans without empty ones; the last span if all are empty."""
    return [span for span in spans if span.start != span.stop] or spans[-1:]


def _placed(span: Span, moved: Iterable[FlattenedRange], log: LogId) -> Span:
    if span.stop is None:
        return span
    for _, start, stop, at in moved:
        if start <= span.start and span.stop <= stop:
            return replace(span, log=log, start=at + span.start - start, stop=at + span.stop - start)
    return span
