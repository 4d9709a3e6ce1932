"""Options that verbs share, and opening the store that they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from anabranch.errors import InvalidArgument, MissingExtra

if TYPE_CHECKING:
    from anabranch.catalog.port import Catalog
    from anabranch.model.cut import StreamCut
    from anabranch.model.ids import Micros
    from anabranch.model.stream import StreamView
    from anabranch.runtime.ports import Runtime
    from anabranch.store import Store
    from anabranch.streams.manager import Streams

STORE_VARIABLE: Final = "ANABRANCH_STORE"
BLOBS_VARIABLE: Final = "ANABRANCH_BLOBS"
HISTORY_VARIABLE: Final = "ANABRANCH_HISTORY"
KEYS_VARIABLE: Final = "ANABRANCH_KEYS"
DEFAULT_STORE: Final = "./river"

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help=f"The store's folder or URL; may also stand before the verb. Default: {STORE_VARIABLE}, else {DEFAULT_STORE}.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help="The stream, as scope/name.")]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="NAME=VALUE", help="A tag; may be given several times.")
]


def new_app(help: str | None = None) -> typer.Typer:  # noqa: A002 - typer's own word
    """A noun's commands, or with no help the one command of a verb."""
    return typer.Typer(help=help, no_args_is_help=help is not None, add_completion=False, rich_markup_mode="rich")


@dataclass
class Invocation:
    """What was said before the verb."""

    store: str | None = None
    blobs: str | None = None
    history: str | None = None
    keys: str | None = None
    debug: bool = False


invocation: Final = Invocation()


def store_path(option: str | None) -> str:
    """The store that is meant: said after the verb, before it, by the environment, or the default."""
    return option or invocation.store or DEFAULT_STORE


def open_store(option: str | None, *, create: bool = False) -> Store:
    """The whole store, to be closed. Raises StoreNotFound unless it may be created, and what `connect` raises."""
    from anabranch.store import connect

    said = invocation
    store = connect(store_path(option), blobs=said.blobs, history=said.history, keys=said.keys, create=create)
    store.streams.insistent = True  # nobody else would ask again
    return store


class Names:
    """A store's catalog alone: enough for verbs that touch no event, and opened much faster."""

    def __init__(self, catalog: Catalog, runtime: Runtime) -> None:
        self.catalog = catalog
        self._runtime = runtime

    @property
    def runtime(self) -> Runtime:
        """What the verbs run on."""
        return self._runtime

    @property
    def now(self) -> Micros:
        """The time by the store's clock."""
        return self._runtime.clock.now()

    @property
    def streams(self) -> Streams:
        """The stream manager, without cuts at a time: those need events. Loaded when it is asked for."""
        from anabranch.streams.manager import Streams

        streams = Streams(self.catalog, self._runtime, cut_at=_no_events, changed=lambda: None)
        streams.insistent = True
        return streams


def _has_catalog(file: Path) -> bool:
    """True if there is one to be opened. What becomes of a missing or an empty one is for the whole store to say."""
    return file.exists() and file.stat().st_size > 0


def _no_events(view: StreamView, time: Micros, by_event_time: bool) -> StreamCut:
    raise AssertionError("a cut at a time needs the whole store")


def _postgres(url: str, runtime: Runtime, *, create: bool) -> Catalog:
    try:
        from anabranch.catalog.postgres.adapter import PostgresCatalog
    except ImportError as exc:
        raise MissingExtra("a catalog on PostgreSQL", "postgres") from exc
    return PostgresCatalog(url, runtime, create=create)


@contextmanager
def open_names(option: str | None, *, create: bool = False) -> Iterator[Names]:
    """The catalog of the store. Raises as `open_store`."""
    from anabranch.catalog.postgres.address import PREFIXES
    from anabranch.catalog.sqlite.adapter import FILE, SqliteCatalog
    from anabranch.runtime.ports import Runtime

    path = store_path(option)
    folder = Path(path).expanduser().absolute()
    postgres = path.startswith(PREFIXES)
    if not postgres and ("://" in path or not _has_catalog(folder / FILE)):
        with open_store(option, create=create) as store:
            yield Names(store.catalog, store.runtime)
        return
    runtime = Runtime()
    # A PostgreSQL catalog is opened without its blobs, so these verbs need not know where those are.
    catalog: Catalog = _postgres(path, runtime, create=create) if postgres else SqliteCatalog(folder, runtime)
    try:
        yield Names(catalog, runtime)
    finally:
        catalog.close()


def parse_tags(texts: list[str] | None) -> dict[str, str]:
    """`name=value` texts as tags. Raises InvalidArgument."""
    tags = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"'{text}' is no tag: write name=value")
        tags[name] = value
    return tags


def split_list(text: str | None) -> list[str] | None:
    """`a,b,c` as a list; None stays None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
