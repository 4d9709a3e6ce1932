"""Ranges of streams as verbs take them: `scope/name[start,end]`, or a stream with `--from` and `--to`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.options import open_names, open_store
from anabranch.errors import InvalidArgument
from anabranch.model.cut import Edge
from anabranch.model.stream_range import StreamRange

if TYPE_CHECKING:
    from anabranch.readers.place import TimeKind
    from anabranch.store import Store
    from anabranch.streams.manager import Streams

_PLACES = "head, tail, a cut, a pointer, a time, or as -2h before now"
RangeArgument = Annotated[
    str, typer.Argument(metavar="STREAM", help="The stream, as scope/name, or a range of it: scope/name\\[start,end].")
]
FromOption = Annotated[
    str | None, typer.Option("--from", metavar="PLACE", help=f"Begin here: {_PLACES}.", show_default="head")
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="PLACE", help=f"End before here: {_PLACES}.", show_default="tail")
]
ByOption = Annotated[
    str,
    typer.Option("--by", metavar="append|event", help="Which times places mean: of appending, or the events' own."),
]


@contextmanager
def open_range(
    store: str | None, stream: str, start: str | None, end: str | None, by: str
) -> Iterator[tuple[Streams, StreamRange]]:
    """The stream manager, and the range: of the brackets, or of the options, not of both. `by`: see `time_kind`."""
    with _open(store, [_told(stream, start, end)], time_kind(by)) as (streams, (source,)):
        yield streams, source


@contextmanager
def open_store_range(
    store: str | None, stream: str, start: str | None, end: str | None, by: str
) -> Iterator[tuple[Store, StreamRange]]:
    """The whole store, for verbs that look at events, and the range as `open_range` takes it."""
    told, kind = _told(stream, start, end), time_kind(by)
    with open_store(store) as opened:
        yield opened, told if told == StreamRange(told.stream) else resolved(opened, told, kind)


def _told(stream: str, start: str | None, end: str | None) -> StreamRange:
    told = StreamRange.parse(stream)
    if start is None and end is None:
        return told
    if told != StreamRange(told.stream):
        raise InvalidArgument("say the range in brackets or with --from and --to, not both")
    return StreamRange(told.stream, start or "head", end or "tail")


@contextmanager
def open_ranges(store: str | None, texts: Sequence[str], by: str) -> Iterator[tuple[Streams, list[StreamRange]]]:
    """The stream manager, and the ranges in their order."""
    with _open(store, [StreamRange.parse(text) for text in texts], time_kind(by)) as found:
        yield found


@contextmanager
def _open(store: str | None, told: Sequence[StreamRange], by: TimeKind) -> Iterator[tuple[Streams, list[StreamRange]]]:
    """Events are only looked at for places that need them."""
    if all(isinstance(cut, Edge) for each in told for cut in (each.start, each.end)):
        with open_names(store) as names:
            yield names.streams, list(told)
        return
    with open_store(store) as opened:
        yield opened.streams, [resolved(opened, each, by) for each in told]


def time_kind(by: str) -> TimeKind:
    """`--by` as one of its two words. Raises InvalidArgument."""
    if by == "append":
        return "append"
    if by == "event":
        return "event"
    raise InvalidArgument(f"--by is append or event, not '{by}'")


def resolved(opened: Store, told: StreamRange, by: TimeKind) -> StreamRange:
    """The range with its places looked up, times by when events were appended or by their own."""
    from anabranch.cli.places import parse_place, resolve

    name, now = str(told.stream), opened.runtime.clock.now()
    texts = (cut.value if isinstance(cut, Edge) else str(cut) for cut in (told.start, told.end))
    start, end = (resolve(opened, name, parse_place(text, now=now), by=by) for text in texts)
    return StreamRange(name, start, end)
