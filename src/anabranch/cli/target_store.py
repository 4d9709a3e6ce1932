"""Opening other stores, and waiting for a job that runs here: shared by `copy`, `append`, `stitch` and `job`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

from anabranch.cli.declare import option
from anabranch.cli.output import print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.core.redact import shown_address
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.transfer.jobs.job import Job

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_NUMBERED: Final = re.compile(r"(\d+)=(.+)")
_PLACES: Final = (
    ("url", "--from-store"),
    ("blobs", "--from-blobs"),
    ("history", "--from-history"),
    ("keys", "--from-keys"),
)

ToStoreOption = Annotated[
    str | None, option("--to-store", "PATH", "Into this store, another folder or URL: bytes are moved, by a job.")
]
ToBlobsOption = Annotated[str | None, option("--to-blobs", "PLACE", "Where that store's blobs are, as --blobs.")]
ToHistoryOption = Annotated[str | None, option("--to-history", "PLACE", "Where its compacted files are, as --history.")]
ToKeysOption = Annotated[str | None, option("--to-keys", "PLACE", "The keys it is encrypted with, as --keys.")]
FromStoreOption = Annotated[
    list[str] | None, option("--from-store", "NAME=PATH", "A store that sources named NAME:scope/name live in.")
]
FromBlobsOption = Annotated[list[str] | None, option("--from-blobs", "NAME=PLACE", "Where that store's blobs are.")]
FromHistoryOption = Annotated[
    list[str] | None, option("--from-history", "NAME=PLACE", "Where its compacted files are.")
]
FromKeysOption = Annotated[list[str] | None, option("--from-keys", "NAME=PLACE", "The keys it is encrypted with.")]
WindowOption = Annotated[int, option("--window", "N", "How many pieces are moved at the same time.", min=1)]


def check_other_store(url: str | None, blobs: str | None, history: str | None, keys: str | None) -> None:
    """Raise InvalidArgument if parts of another store are given, but not the store."""
    if url is None and (blobs, history, keys) != (None, None, None):
        raise InvalidArgument("--to-blobs, --to-history and --to-keys belong to another store: add --to-store PATH")


def open_other_store(url: str, blobs: str | None, history: str | None, keys: str | None) -> Store:
    """Opens the other store, which the caller closes. Raises what `connect` raises; StoreNotFound if it does not
    exist."""
    from anabranch.store import connect

    return connect(url, blobs=blobs, history=history, keys=keys, create=False)


@contextmanager
def open_named(
    stores: Sequence[str] | None,
    blobs: Sequence[str] | None,
    history: Sequence[str] | None,
    keys: Sequence[str] | None,
) -> Iterator[dict[str, Store]]:
    """Opens other stores, by their given names. Raises the same errors as `open_other_store`, InvalidArgument."""
    options = zip(_PLACES, (stores, blobs, history, keys), strict=True)
    urls, *places_by_name = (_named(option, texts or ()) for (_, option), texts in options)
    for name in (name for where in places_by_name for name in where if name not in urls):
        raise InvalidArgument(f"the location of store '{name}' is missing: add --from-store {name}=PATH")
    with ExitStack() as stack:
        found = {}
        for name, url in urls.items():
            found[name] = open_other_store(url, *(where.get(name) for where in places_by_name))
            stack.callback(found[name].close)
        yield found


def _named(option: str, texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (_NAME.fullmatch(name) and sign and value):
            raise InvalidArgument(f"expected a name for each store, such as {option} lake=PLACE, not '{text}'")
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
    """Opens the other stores of a job whose row has these `places`; None if no option is given. What the options
    leave out is as in the row. Raises the same errors as `open_other_store`, InvalidArgument."""
    others = [number for number, place in enumerate(places, 1) if place]
    options = zip(_PLACES, (stores, blobs, history, keys), strict=True)
    given = {name: _numbered(option, texts or (), others) for (name, option), texts in options}
    if not any(given.values()):
        yield None
        return
    with ExitStack() as stack:
        found = []
        for number in others:
            place = {**places[number - 1], **{name: of[number] for name, of in given.items() if number in of}}
            found.append(open_other_store(place["url"], *(place.get(name) for name in ("blobs", "history", "keys"))))
            stack.callback(found[-1].close)
        yield found


def _numbered(option: str, texts: Sequence[str], others: Sequence[int]) -> dict[int, str]:
    """Parses `N=PLACE`, or `PLACE` if there is only one other store, into places by the store's number."""
    found = {}
    for text in texts:
        match = _NUMBERED.fullmatch(text)
        if not others:
            raise InvalidArgument("the job reads no other store")
        if match is None and len(others) > 1:
            raise InvalidArgument(f"name the store by its number in job show: {option} {others[0]}={text}")
        number, place = (int(match[1]), match[2]) if match else (others[0], text)
        if number not in others:
            raise InvalidArgument(f"the job reads no other store with the number {number}; job show lists them")
        found[number] = place
    return found


def finish(job: Job, meter: ProgressMeter, store: str) -> Any:
    """Waits for a job that runs here and returns its result. An interrupt pauses it and prints how to continue, with the
    address of its `store` for a shell, but without a password."""
    try:
        return job.wait()
    except KeyboardInterrupt:
        with meter.paused():
            row = job.pause()
            if not row.state.ended:
                place = shlex.quote(shown_address(store))
                print_note(f"job {job.id} is paused; continue with: anabranch --store {place} job resume {job.id}")
        raise
