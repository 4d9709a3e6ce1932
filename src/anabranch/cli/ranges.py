"""Ranges of streams as verbs take them: `scope/name[start,end]`, or a stream with `--from` and `--to`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from anabranch.cli.declare import argument, option
from anabranch.cli.options import open_catalog, open_store
from anabranch.errors import InvalidArgument
from anabranch.model.cut import Edge
from anabranch.model.stream_range import StreamRange
from anabranch.model.time_kind import time_kind as kind_of

if TYPE_CHECKING:
    from anabranch.model.cut import StreamCut
    from anabranch.model.time_kind import TimeKind
    from anabranch.store import Store
    from anabranch.streams.manager import Streams

_PLACES = "head, tail, a cut, a pointer, a time, or -2h (two hours ago)"
FROM_OPTION: Final = option("--from", "PLACE", f"Begin here: {_PLACES}.", show_default="head")
TO_OPTION: Final = option("--to", "PLACE", f"End before here: {_PLACES}.", show_default="tail")
BY_OPTION: Final = option(
    "--by", "append|event", "What a time means: the append time, or the event time.", default="append"
)


@dataclass(frozen=True)
class RangeOptions:
    """A stream, or a range of it: in brackets, or between --from and --to."""

    stream: str = argument("STREAM", "The stream, as scope/name, or a range of it: scope/name\\[start,end].")
    start: str | None = FROM_OPTION
    end: str | None = TO_OPTION
    by: str = BY_OPTION

    @contextmanager
    def open(self) -> Iterator[tuple[Store, StreamRange]]:
        """Opens the whole store, for verbs that read events, and the range."""
        parsed, kind = self._parsed(), time_kind(self.by)
        with open_store() as opened:
            yield opened, resolve_range(opened, parsed, kind)

    @contextmanager
    def open_streams(self) -> Iterator[tuple[Streams, StreamRange]]:
        """Opens the stream manager, and the range."""
        with _open([self._parsed()], time_kind(self.by)) as (streams, (source,)):
            yield streams, source

    def _parsed(self) -> StreamRange:
        parsed = StreamRange.parse(self.stream)
        if self.start is None and self.end is None:
            return parsed
        if parsed != StreamRange(parsed.stream):
            raise InvalidArgument("pass the range in brackets or with --from and --to, not both")
        return StreamRange(parsed.stream, self.start or "head", self.end or "tail")


@contextmanager
def open_ranges(texts: Sequence[str], by: str) -> Iterator[tuple[Streams, list[StreamRange]]]:
    """Opens the stream manager, and the ranges in their order."""
    with _open([StreamRange.parse(text) for text in texts], time_kind(by)) as found:
        yield found


@contextmanager
def _open(parsed: Sequence[StreamRange], by: TimeKind) -> Iterator[tuple[Streams, list[StreamRange]]]:
    """Opens the whole store only if a place needs events to be resolved."""
    if all(isinstance(cut, Edge) for each in parsed for cut in (each.start, each.end)):
        with open_catalog() as names:
            yield names.streams, list(parsed)
        return
    with open_store() as opened:
        yield opened.streams, [resolve_range(opened, each, by) for each in parsed]


def time_kind(by: str) -> TimeKind:
    """Returns `--by` as one of its two values. Raises InvalidArgument."""
    return kind_of(by, form="--by {}")


def resolve_range(opened: Store, parsed: StreamRange, by: TimeKind) -> StreamRange:
    """Returns the range with its places resolved to cuts, unless it is the whole stream; `by` selects append times or
    event times. Warns of events on the wrong side of an event time."""
    if parsed == StreamRange(parsed.stream):
        return parsed
    from anabranch.cli.stream_places import parse_place, resolve

    name, now = str(parsed.stream), opened.runtime.clock.now()

    def cut(end: StreamCut | Edge | str) -> StreamCut:
        place = parse_place(end.value if isinstance(end, Edge) else str(end), now=now)
        if by == "event" and isinstance(place, datetime | int):
            return opened.cuts.at(name, place, by=by)
        return resolve(opened, name, place, by=by)

    return StreamRange(name, cut(parsed.start), cut(parsed.end))
