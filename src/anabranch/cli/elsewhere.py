"""Another store as a target, and waiting for the job that writes to it: what `copy`, `append`, `stitch` and `job` share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from anabranch.cli.output import say
from anabranch.cli.progress import Meter
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.streams.jobs.job import Job

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_NUMBERED: Final = re.compile(r"(\d+)=(.+)")
_PLACES: Final = (
    ("url", "--from-store"),
    ("blobs", "--from-blobs"),
    ("history", "--from-history"),
    ("keys", "--from-keys"),
)

ToStoreOption = Annotated[
    str | None,
    typer.Option(
        "--to-store", metavar="PATH", help="Into this store, another folder or URL: bytes are moved, by a job."
    ),
]
ToBlobsOption = Annotated[
    str | None, typer.Option("--to-blobs", metavar="PLACE", help="Where that store's blobs are, as --blobs.")
]
ToHistoryOption = Annotated[
    str | None, typer.Option("--to-history", metavar="PLACE", help="Where its compacted files are, as --history.")
]
ToKeysOption = Annotated[
    str | None, typer.Option("--to-keys", metavar="PLACE", help="The keys it is encrypted with, as --keys.")
]
FromStoreOption = Annotated[
    list[str] | None,
    typer.Option("--from-store", metavar="NAME=PATH", help="A store that sources named NAME:scope/name live in."),
]
FromBlobsOption = Annotated[
    list[str] | None, typer.Option("--from-blobs", metavar="NAME=PLACE", help="Where that store's blobs are.")
]
FromHistoryOption = Annotated[
    list[str] | None,
    typer.Option("--from-history", metavar="NAME=PLACE", help="Where its compacted files are."),
]
FromKeysOption = Annotated[
    list[str] | None, typer.Option("--from-keys", metavar="NAME=PLACE", help="The keys it is encrypted with.")
]
WindowOption = Annotated[
    int, typer.Option("--window", metavar="N", min=1, help="How many pieces are moved at the same time.")
]


def open_elsewhere(url: str, blobs: str | None, history: str | None, keys: str | None) -> Store:
    """The other store, to be closed. Raises as `connect`; StoreNotFound where there is none."""
    from anabranch.store import connect

    return connect(url, blobs=blobs, history=history, keys=keys, create=False)


@contextmanager
def open_named(
    stores: Sequence[str] | None,
    blobs: Sequence[str] | None,
    history: Sequence[str] | None,
    keys: Sequence[str] | None,
) -> Iterator[dict[str, Store]]:
    """Other stores by the names that they are given. Raises as `open_elsewhere`, InvalidArgument."""
    urls, *wheres = (_named(each) for each in (stores, blobs, history, keys))
    for name in (name for where in wheres for name in where if name not in urls):
        raise InvalidArgument(f"say where the store '{name}' is: --from-store {name}=PATH")
    with ExitStack() as stack:
        found = {}
        for name, url in urls.items():
            found[name] = open_elsewhere(url, *(where.get(name) for where in wheres))
            stack.callback(found[name].close)
        yield found


def _named(texts: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not (_NAME.fullmatch(name) and sign and value):
            raise InvalidArgument(f"name each store, as --from-store lake=PATH, not '{text}'")
        found[name] = value
    return found


@contextmanager
def open_sources(
    places: Sequence[Mapping[str, str]],
    stores: Sequence[str] | None,
    blobs: Sequence[str] | None,
    history: Sequence[str] | None,
    keys: Sequence[str] | None,
) -> Iterator[list[Store] | None]:
    """The other stores of a job whose row has these `places`, where something is said of them; None where nothing is. What is
    not said is as it was. Raises as `open_elsewhere`, InvalidArgument."""
    others = [number for number, place in enumerate(places, 1) if place]
    told = zip(_PLACES, (stores, blobs, history, keys), strict=True)
    said = {name: _numbered(option, texts or (), others) for (name, option), texts in told}
    if not any(said.values()):
        yield None
        return
    with ExitStack() as stack:
        found = []
        for number in others:
            place = {**places[number - 1], **{name: of[number] for name, of in said.items() if number in of}}
            found.append(open_elsewhere(place["url"], *(place.get(name) for name in ("blobs", "history", "keys"))))
            stack.callback(found[-1].close)
        yield found


def _numbered(option: str, texts: Sequence[str], others: Sequence[int]) -> dict[int, str]:
    """`N=PLACE`, or `PLACE` where there is one other store alone, by the store's number."""
    found = {}
    for text in texts:
        told = _NUMBERED.fullmatch(text)
        if not others:
            raise InvalidArgument("the job reads no other store")
        if told is None and len(others) > 1:
            raise InvalidArgument(f"say which store by its number in job show: {option} {others[0]}={text}")
        number, place = (int(told[1]), told[2]) if told else (others[0], text)
        if number not in others:
            raise InvalidArgument(f"the job reads no other store with the number {number}; job show lists them")
        found[number] = place
    return found


def finish(job: Job, meter: Meter, store: str) -> Any:
    """Wait for a job that runs here and return what it made. An interrupt pauses it and says how to go on."""
    try:
        return job.wait()
    except KeyboardInterrupt:
        with meter.paused():
            row = job.pause()
            if not row.state.ended:
                say(f"job {job.id} is paused; go on with: anabranch --store {store} job resume {job.id}")
        raise
