"""Opening other stores, and waiting for a job that runs here: shared by `copy`, `append`, `stitch` and `job`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.declare import option
from anabranch.cli.options import store_path
from anabranch.cli.output import print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.core.redact import shown_address
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.transfer.jobs.job import Job

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_NUMBERED: Final = re.compile(r"(\d+)=(.+)")

WINDOW_OPTION: Final = option("--window", "N", "How many pieces are moved at the same time.", min=1, default=4)


@dataclass(frozen=True)
class TargetStoreOptions:
    """The store that a verb writes to, if that is not the one it reads. Raises InvalidArgument for parts of a store
    without the store."""

    url: str | None = option("--to-store", "PATH", "Into this store, another folder or URL: bytes are moved, by a job.")
    blobs: str | None = option("--to-blobs", "PLACE", "Where that store's blobs are, as --blobs.")
    history: str | None = option("--to-history", "PLACE", "Where its compacted files are, as --history.")
    keys: str | None = option("--to-keys", "PLACE", "The keys it is encrypted with, as --keys.")

    def __post_init__(self) -> None:
        if self.url is None and (self.blobs, self.history, self.keys) != (None, None, None):
            raise InvalidArgument("--to-blobs, --to-history and --to-keys belong to another store: add --to-store PATH")

    @property
    def place(self) -> str:
        """The address of the store that is written to."""
        return self.url or store_path()

    @contextmanager
    def open(self, here: Store) -> Iterator[Store]:
        """Opens the store that is written to: the other one, or `here`. Raises what `connect` raises; StoreNotFound if the
        other one does not exist."""
        if self.url is None:
            yield here
            return
        with _connect(self.url, self.blobs, self.history, self.keys) as other:
            yield other


@dataclass(frozen=True)
class SourceStoreOptions:
    """The stores that the sources of a verb live in, by names."""

    urls: list[str] | None = option("--from-store", "NAME=PATH", "A store that sources named NAME:scope/name live in.")
    blobs: list[str] | None = option("--from-blobs", "NAME=PLACE", "Where that store's blobs are.")
    history: list[str] | None = option("--from-history", "NAME=PLACE", "Where its compacted files are.")
    keys: list[str] | None = option("--from-keys", "NAME=PLACE", "The keys it is encrypted with.")

    @property
    def named(self) -> bool:
        """True if an option is given."""
        return any((self.urls, self.blobs, self.history, self.keys))

    @contextmanager
    def open(self) -> Iterator[dict[str, Store]]:
        """Opens the stores, by their names. Raises the same errors as `TargetStoreOptions.open`, InvalidArgument."""
        urls = _by_name("--from-store", self.urls)
        places = [
            _by_name("--from-blobs", self.blobs),
            _by_name("--from-history", self.history),
            _by_name("--from-keys", self.keys),
        ]
        for name in (name for each in places for name in each if name not in urls):
            raise InvalidArgument(f"the location of store '{name}' is missing: add --from-store {name}=PATH")
        with ExitStack() as stack:
            yield {
                name: stack.enter_context(_connect(url, *(each.get(name) for each in places)))
                for name, url in urls.items()
            }


def _by_name(flag: str, texts: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not (_NAME.fullmatch(name) and sign and value):
            raise InvalidArgument(f"expected a name for each store, such as {flag} lake=PLACE, not '{text}'")
        found[name] = value
    return found


@dataclass(frozen=True)
class JobStoreOptions:
    """The stores that a job reads, by their numbers in `job show`."""

    url: list[str] | None = option(
        "--from-store",
        "[N=]PATH",
        "The location of the store that the job reads; with several stores, N is its number in job show.",
    )
    blobs: list[str] | None = option("--from-blobs", "[N=]PLACE", "Where that store's blobs are.")
    history: list[str] | None = option("--from-history", "[N=]PLACE", "Where its compacted files are.")
    keys: list[str] | None = option("--from-keys", "[N=]PLACE", "The keys it is encrypted with.")

    @contextmanager
    def open(self, places: Sequence[Mapping[str, str]]) -> Iterator[list[Store] | None]:
        """Opens the other stores of a job whose row has these `places`; None if no option is given. What the options
        leave out is as in the row. Raises the same errors as `TargetStoreOptions.open`, InvalidArgument."""
        others = [number for number, place in enumerate(places, 1) if place]
        asked = {
            "url": _by_number("--from-store", self.url, others),
            "blobs": _by_number("--from-blobs", self.blobs, others),
            "history": _by_number("--from-history", self.history, others),
            "keys": _by_number("--from-keys", self.keys, others),
        }
        if not any(asked.values()):
            yield None
            return
        with ExitStack() as stack:
            found = []
            for number in others:
                place = {**places[number - 1], **{name: of[number] for name, of in asked.items() if number in of}}
                store = _connect(place["url"], *(place.get(name) for name in ("blobs", "history", "keys")))
                found.append(stack.enter_context(store))
            yield found


def _by_number(flag: str, texts: Sequence[str] | None, others: Sequence[int]) -> dict[int, str]:
    """Parses `N=PLACE`, or `PLACE` if there is only one other store, into places by the store's number."""
    found = {}
    for text in texts or ():
        match = _NUMBERED.fullmatch(text)
        if not others:
            raise InvalidArgument("the job reads no other store")
        if match is None and len(others) > 1:
            raise InvalidArgument(f"name the store by its number in job show: {flag} {others[0]}={text}")
        number, place = (int(match[1]), match[2]) if match else (others[0], text)
        if number not in others:
            raise InvalidArgument(f"the job reads no other store with the number {number}; job show lists them")
        found[number] = place
    return found


def _connect(url: str, blobs: str | None, history: str | None, keys: str | None) -> Store:
    from anabranch.store import connect

    return connect(url, blobs=blobs, history=history, keys=keys, create=False)


def finish(job: Job, meter: ProgressMeter, place: str | None = None) -> Any:
    """Waits for a job that runs here and returns its result. An interrupt pauses it and prints how to continue, with the
    address of the store it writes to, by default the selected one, for a shell, but without a password."""
    try:
        return job.wait()
    except KeyboardInterrupt:
        with meter.paused():
            row = job.pause()
            if not row.state.ended:
                shown = shlex.quote(shown_address(place or store_path()))
                print_note(f"job {job.id} is paused; continue with: anabranch --store {shown} job resume {job.id}")
        raise
