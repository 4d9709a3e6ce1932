"""A template as a value, and those that come with the package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from anabranch.core.sql_parameters import declarations
from anabranch.errors import InvalidSql
from anabranch.model.ids import Micros

__all__ = ["QueryTemplate", "TemplateParameter", "packaged", "to_template"]


@dataclass(frozen=True, slots=True)
class TemplateParameter:
    """A parameter that a template declares: its type, its default as text (None: it needs a value), and the comment behind
    it."""

    name: str
    type: str
    default: str | None
    meaning: str


@dataclass(frozen=True, slots=True)
class QueryTemplate:
    """Statements with parameters. `description` is the comment with which `text` begins. `saved_at` is None for a template
    that comes with the package."""

    name: str
    description: str
    parameters: tuple[TemplateParameter, ...]
    text: str
    saved_at: Micros | None


def to_template(name: str, text: str, saved_at: Micros | None = None) -> QueryTemplate:
    """The template with this text, whose statements are not checked: it has no parameters if a declaration is not valid."""
    try:
        declared = declarations(text)
    except InvalidSql:
        declared = ()
    parameters = tuple(TemplateParameter(each.name, each.kind, each.default, each.meaning) for each in declared)
    return QueryTemplate(name, " ".join(_description(text)), parameters, text, saved_at)


@cache
def packaged() -> dict[str, QueryTemplate]:
    """The templates that come with the package, by name."""
    names = (each.name for each in files(__package__).iterdir() if each.name.endswith(".sql"))
    found = {}
    for name in sorted(names):
        text = files(__package__).joinpath(name).read_text(encoding="utf-8")
        found[name.removesuffix(".sql")] = to_template(name.removesuffix(".sql"), text)
    return found


def _description(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("--"):
            return
        yield line.removeprefix("--").strip()
