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
    from anabranch.store import Store
    from anabranch.streams.manager import Streams

_PLACES = "head, tail, a cut, a pointer, a time, or as -2h before now"
RangeArgument = Annotated[
    str, typer.Argument(metavar="STREAM", help="The stream, as scope/name, or a range of it: scope/name[start,end].")
]
FromOption = Annotated[
    str | None, typer.Option("--from", metavar="PLACE", help=f"Begin here: {_PLACES}.", show_default="head")
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="PLACE", help=f"End before here: {_PLACES}.", show_default="tail")
]


@contextmanager
def open_range(
    store: str | None, stream: str, start: str | None, end: str | None
) -> Iterator[tuple[Streams, StreamRange]]:
    """The stream manager, and the range: of the brackets, or of the options, not of both."""
    with _open(store, [_told(stream, start, end)]) as (streams, (source,)):
        yield streams, source


@contextmanager
def open_store_range(
    store: str | None, stream: str, start: str | None, end: str | None
) -> Iterator[tuple[Store, StreamRange]]:
    """The whole store, for verbs that look at events, and the range as `open_range` takes it."""
    told = _told(stream, start, end)
    with open_store(store) as opened:
        yield opened, told if told == StreamRange(told.stream) else resolved(opened, told)


def _told(stream: str, start: str | None, end: str | None) -> StreamRange:
    told = StreamRange.parse(stream)
    if start is None and end is None:
        return told
    if told != StreamRange(told.stream):
        raise InvalidArgument("say the range in brackets or with --from and --to, not both")
    return StreamRange(told.stream, start or "head", end or "tail")


@contextmanager
def open_ranges(store: str | None, texts: Sequence[str]) -> Iterator[tuple[Streams, list[StreamRange]]]:
    """The stream manager, and the ranges in their order."""
    with _open(store, [StreamRange.parse(text) for text in texts]) as found:
        yield found


@contextmanager
def _open(store: str | None, told: Sequence[StreamRange]) -> Iterator[tuple[Streams, list[StreamRange]]]:
    """Events are only looked at for places that need them."""
    if all(isinstance(cut, Edge) for each in told for cut in (each.start, each.end)):
        with open_names(store) as names:
            yield names.streams, list(told)
        return
    with open_store(store) as opened:
        yield opened.streams, [resolved(opened, each) for each in told]


def resolved(opened: Store, told: StreamRange) -> StreamRange:
    """The range with its places looked up."""
    from anabranch.cli.places import parse_place, resolve

    name, now = str(told.stream), opened.runtime.clock.now()
    texts = (cut.value if isinstance(cut, Edge) else str(cut) for cut in (told.start, told.end))
    start, end = (resolve(opened, name, parse_place(text, now=now)) for text in texts)
    return StreamRange(name, start, end)
