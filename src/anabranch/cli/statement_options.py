"""The arguments and options of verbs that take a file of CREATE STREAM statements: `pipeline run`, `queries deploy` …"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch import limits
from anabranch.cli.confirm import confirm
from anabranch.cli.input_files import read_text
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.reading.bounds import Place
    from anabranch.store import Store

FileArgument = Annotated[Path, typer.Argument(metavar="FILE.sql", help="The statements.")]
FileOrTemplateArgument = Annotated[
    Path | None, typer.Argument(metavar="[FILE.sql]", help="The statements; or pass --template.", show_default=False)
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="NAME",
        help="Use the statements of this template; see `queries templates`.",
        show_default=False,
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param", metavar="NAME=VALUE", help="A parameter that the file declares; may be given several times."
    ),
]
StartFromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from", metavar="PLACE", help="Start over from here: head, tail, a time, -15m, or a cut (one per source)."
    ),
]
StartByOption = Annotated[str, typer.Option("--by", metavar="append|event", help="The kind of time of --from.")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="With --from: drop the earlier results.")]
DropResultsOption = Annotated[
    bool, typer.Option("--drop-results", help="Delete its result streams too, if it made them.")
]


def read_statements(file: Path) -> str:
    """Returns the text of a file of statements, which is UTF-8; `-` is stdin. Raises InvalidArgument."""
    return read_text(file, what="the file of statements", bytes_max=limits.DEPLOYMENT_TEXT_BYTES_MAX)


def translated_statements(file: Path, dialect: str | None) -> str:
    """Returns the text of a file of statements, translated if it is in a `dialect`. Raises InvalidArgument, InvalidSql."""
    text = read_statements(file)
    if dialect is None:
        return text
    from anabranch.query.dialects.translate import translate

    return translate(text, dialect, "pipeline")


def statements_of(store: Store, file: Path | None, template: str | None, dialect: str | None) -> str:
    """Returns the text of a file of statements, translated if it is in a `dialect`, or of a template, of which one is given.
    Raises InvalidArgument, InvalidSql, TemplateNotFound."""
    if (file is None) == (template is None):
        raise InvalidArgument("pass either a file of statements or --template")
    if file is not None:
        return translated_statements(file, dialect)
    if dialect is not None:
        raise InvalidArgument("--dialect is that of a file of statements; a template has none")
    return store.templates.get(str(template)).text


def parse_starts(store: Store, texts: Sequence[str] | None) -> list[Place] | None:
    """Returns the positions that the texts of --from name, one per source; None without the option."""
    from anabranch.cli.stream_places import parse_place

    now = store.runtime.clock.now()
    return [parse_place(text, now=now) for text in texts] if texts else None


def confirm_replace(kind: str, name: str, starts: Sequence[str] | None, *, replace: bool, yes: bool) -> None:
    """Ask before earlier results are dropped; `kind` is "query" or "pipeline"."""
    if replace and starts:
        confirm(f"Drop the earlier results of {kind} '{name}'?", yes=yes)
