"""A template as a value, and those that come with the package."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros

__all__ = ["QueryTemplate", "TemplateParameter", "packaged", "to_template"]

_PARAMETER: Final = re.compile(
    r"[ \t]*DECLARE[ \t]+PARAMETER[ \t]+(?P<name>\w+)[ \t]+(?P<type>\w+)"
    r"(?:[ \t]+DEFAULT[ \t]+(?P<default>'[^'\n]*'|-?[\w.]+))?[ \t]*;[ \t]*(?:--[ \t]*(?P<meaning>[^\n]*))?$",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class TemplateParameter:
    """A parameter that a template declares on a line of its own: its type, its default as text (None: it needs a value), and
    the comment behind it."""

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

    def text_for(self, values: Mapping[str, object]) -> str:
        """The text, if each parameter that needs a value is among `values`. Raises InvalidArgument."""
        given = {name.lower() for name in values}
        missing = [each for each in self.parameters if each.default is None and each.name.lower() not in given]
        if missing:
            wanted = ", ".join(f"{each.name} ({each.meaning or each.type})" for each in missing)
            raise InvalidArgument(f"template '{self.name}' needs values of these parameters: {wanted}")
        return self.text


def to_template(name: str, text: str, saved_at: Micros | None = None) -> QueryTemplate:
    """The template with this text, whose statements are not checked."""
    parameters = tuple(
        TemplateParameter(
            found["name"],
            found["type"].upper(),
            None if found["default"] is None else found["default"].strip("'"),
            (found["meaning"] or "").strip(),
        )
        for found in _PARAMETER.finditer(text)
    )
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
