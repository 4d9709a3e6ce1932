"""Ranges of streams as verbs take them: a stream with `--from` and `--to`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.options import open_names, open_store
from anabranch.model.stream_range import StreamRange

if TYPE_CHECKING:
    from anabranch.streams.manager import Streams

_PLACES = "head, tail, a cut, a pointer, a time, or as -2h before now"
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
    """The stream manager, and the range. Events are only looked at for places that need them."""
    if start is None and end is None:
        with open_names(store) as names:
            yield names.streams, StreamRange(stream)
        return
    from anabranch.cli.places import parse_place, resolve

    with open_store(store) as opened:
        now = opened.runtime.clock.now()
        places = (parse_place(start or "head", now=now), parse_place(end or "tail", now=now))
        first, last = (resolve(opened, stream, place) for place in places)
        yield opened.streams, StreamRange(stream, first, last)
