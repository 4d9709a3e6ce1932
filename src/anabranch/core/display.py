"""How public objects describe themselves in a prompt, a log line and a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from anabranch.core.terminal import terminal_text


class Displayed:
    """Gives a class `repr` and a notebook's table. The class lists its facts in `_facts`: name, state, size, from memory
    alone, because a debugger or a log line must not wait for a database. A class without facts shows its verbs."""

    __slots__ = ()

    def _facts(self) -> Mapping[str, object]:
        return {}

    def _known_facts(self) -> Mapping[str, object]:
        try:
            return self._facts()
        except AttributeError:  # its constructor raised, and a traceback shows it
            return {"state": "not constructed"}

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={_short(value)}" for name, value in self._known_facts().items())
        return f"{type(self).__name__}({facts})" if facts else f"<{type(self).__name__}: {', '.join(_verbs(self))}>"

    def _repr_html_(self) -> str:
        facts: Mapping[str, Any] = self._known_facts() or {"methods": ", ".join(_verbs(self))}
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(_text(value))}</td></tr>"
            for name, value in facts.items()
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption>{rows}</table>"


def _verbs(displayed: object) -> list[str]:
    return [
        name for name in dir(displayed) if not name.startswith("_") and callable(getattr(type(displayed), name, None))
    ]


def _short(value: object) -> str:
    # Names of readers and groups are the application's text, which must not control a terminal.
    return repr(value) if isinstance(value, str) else terminal_text(str(value))


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return terminal_text(str(value))
