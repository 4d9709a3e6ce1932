"""Options that verbs share, and opening the store that they select."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import typer
from typer.core import TyperOption

from anabranch.cli.declare import argument, flag, opens_store, option
from anabranch.cli.formats import Format
from anabranch.cli.verbs import DEFAULT_STORE, ROOT_OPTIONS, STORE_VARIABLE
from anabranch.errors import InvalidArgument
from anabranch.remote.address import is_broker

if TYPE_CHECKING:
    from anabranch.model.times import TimeRules
    from anabranch.runtime.settings import Settings
    from anabranch.store import Store
    from anabranch.store.catalog_store import CatalogStore

SHARED_PANEL: Final = "Options of every verb"
_STORE_HELP: Final = (
    f"The store's folder or URL; may also be given before the verb. Default: {STORE_VARIABLE}, else {DEFAULT_STORE}."
)
_ROOT_OPTIONS: Final = {option.flag[2:].replace("-", "_"): option for option in ROOT_OPTIONS}


JSON_OPTION: Final = flag("--json", "Print JSON, for programs.")
STREAM_ARGUMENT: Final = argument("STREAM", "The stream, as scope/name.")
TAG_OPTION: Final = option("--tag", "NAME=VALUE", "A tag; may be given several times.")
WITH_TAG_OPTION: Final = option("--tag", "NAME[=VALUE]", "Only those with this tag; may be given several times.")
MATCH_OPTION: Final = option(
    "--match", "GLOB", "Only those whose name matches: 'sensor-*'; with a slash, the full name."
)
SCHEMA_OPTION: Final = option("--schema", "TEXT", "Columns as 'name:type, name:type'.")
KEY_OPTION: Final = option("--key", "COLUMN", "The column that is the routing key.")
TIME_OPTION: Final = option("--time", "COLUMN", "The column that is the event time.")
FOLLOW_OPTION: Final = flag("--follow -f", "Keep waiting for more, until Ctrl-C.")
INTERNAL_OPTION: Final = flag("--internal", "Also the store's own streams.")
TRUNCATE_TIMES_OPTION: Final = flag("--truncate-times", "Truncate times to µs; otherwise finer times are refused.")


@dataclass(frozen=True)
class OutputOptions:
    """Where a result goes, and in which format."""

    form: Format | None = option(
        "--format", None, "Default: by the ending of --output; a table on a terminal, else JSON lines."
    )
    file: Path | None = option("--output -o", "FILE", "Write a new file instead of stdout.")
    as_json: bool = JSON_OPTION

    @property
    def kind(self) -> Format:
        """The format that is asked for, or that fits where the result goes. Raises InvalidArgument."""
        from anabranch.cli.render.result import choose

        return choose(self.form, as_json=self.as_json, output=self.file)


@dataclass
class Invocation:
    """The options that may stand before or after the verb."""

    store: str | None = None
    blobs: str | None = None
    history: str | None = None
    keys: str | None = None
    time_zone: str | None = None
    truncate_times: bool = False  # for `write` only
    debug: bool = False


invocation: Final = Invocation()


def root_option(name: str, **more: Any) -> Any:
    """The option `--<name>` as a parameter of the whole command line, which also reads the environment variable."""
    option = _ROOT_OPTIONS[name]
    return typer.Option(
        option.flag, metavar=option.metavar or None, envvar=option.variable or None, help=option.help, **more
    )


def _shared_option(name: str) -> Any:
    """The option `--<name>` as a parameter of a verb; its value goes into `invocation`."""
    option = _ROOT_OPTIONS[name]

    def note(value: Any) -> None:
        if value:
            setattr(invocation, name, value)

    return TyperOption(
        param_decls=[name, option.flag],
        type=str if option.metavar else bool,
        is_flag=not option.metavar,
        default=None if option.metavar else False,
        metavar=option.metavar or None,
        help=_STORE_HELP if name == "store" else f"{option.help} Default: {option.variable}.",
        callback=lambda _context, _option, value: note(value),
        expose_value=False,
        rich_help_panel=SHARED_PANEL,
    )


def add_shared_options(command: Any) -> None:
    """Add the shared options to every verb below; to one that opens no store only --debug."""
    verbs = getattr(command, "commands", None)
    if verbs is not None:
        for verb in verbs.values():
            add_shared_options(verb)
        return
    names = ("store", "blobs", "history", "keys", "time_zone", "debug") if opens_store(command.callback) else ("debug",)
    command.params += [_shared_option(name) for name in names]


def store_path() -> str:
    """Returns the selected store: from the option after the verb, the one before it, the environment, or the
    default."""
    return invocation.store or DEFAULT_STORE


def time_rules() -> TimeRules:
    """Returns how times are read, on the command line and in its input. Raises InvalidArgument."""
    from anabranch.model.times import TimeRules

    return TimeRules(invocation.time_zone, invocation.truncate_times)


def settings() -> Settings:
    """Returns the settings of stores that this command line opens. Raises InvalidArgument."""
    from anabranch.runtime.settings import Settings

    return Settings(time_zone=invocation.time_zone, truncate_times=invocation.truncate_times)


def open_store(*, create: bool = False) -> Store:
    """Opens the whole store, which the caller closes. Raises StoreNotFound unless it may be created, and what
    `connect` raises."""
    from anabranch.remote.open import connect
    from anabranch.runtime.process import freeze_imports

    chosen, place = invocation, store_path()
    more: dict[str, Any] = {}
    if chosen.time_zone is not None or chosen.truncate_times:
        more["settings"] = settings()
    store = connect(place, blobs=chosen.blobs, history=chosen.history, keys=chosen.keys, create=create, **more)
    freeze_imports()
    if not is_broker(place):  # calls of a broker are repeated anyway
        store.changes.retry_uncertain = True  # there is no caller to repeat the request
    return store


@contextmanager
def open_catalog(*, create: bool = False) -> Iterator[CatalogStore]:
    """Open the catalog of the store alone: much faster than `open_store`, and enough for verbs that need no events.
    With a broker's address it is the whole store. Raises the same errors."""
    if is_broker(store_path()):
        with open_store() as remote:
            yield cast("CatalogStore", remote)
        return
    from anabranch.store.catalog_store import connect_catalog

    chosen = invocation
    store = connect_catalog(store_path(), blobs=chosen.blobs, history=chosen.history, keys=chosen.keys, create=create)
    store.changes.retry_uncertain = True  # no caller repeats the request
    with store:
        yield store


def split_list(flag: str, text: str | None) -> list[str]:
    """Splits `a,b,c`, the value of an option; empty without the option. Raises InvalidArgument for a value without an
    element."""
    found = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text is not None and not found:
        raise InvalidArgument(f"{flag} takes a list such as a,b, not '{text}'")
    return found
