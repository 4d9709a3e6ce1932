"""The help of the whole command line, drawn from the table of verbs without loading Typer, Rich or any command.

It looks as Typer draws the help of a verb; `tests/cli/test_help.py` compares the two.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final, TextIO

from anabranch.cli.verbs import INTRODUCTION, ROOT_OPTIONS, VERBS, RootOption

_RESET: Final = "\033[0m"
_DIM, _BOLD, _NAME, _METAVAR, _SHORT, _VARIABLE = (
    f"\033[{code}m" for code in ("2", "1", "1;36", "1;33", "1;32", "2;33")
)
_WIDTH_MIN: Final = 48  # below, the columns of the options leave no room for their help
_GAP: Final = 2  # between two columns


def print_root_help(out: TextIO | None = None) -> None:
    """Print the help, in colour if `out` (stdout by default) is a terminal."""
    out = sys.stdout if out is None else out
    styled = bool(os.environ.get("FORCE_COLOR")) or (out.isatty() and os.environ.get("TERM") != "dumb")
    width = shutil.get_terminal_size().columns
    out.write(root_help(width, styled=styled and not os.environ.get("NO_COLOR")))


def root_help(width: int, *, styled: bool = False) -> str:
    """The help for a terminal of `width` columns; `styled`: with ANSI colours."""
    return "\n".join([*_lines(max(width, _WIDTH_MIN), _Style(styled)), "", ""])


class _Style:
    def __init__(self, styled: bool) -> None:
        self._styled = styled

    def __call__(self, code: str, text: str) -> str:
        """The text, in a style if styles are wanted."""
        return f"{code}{text}{_RESET}" if self._styled and text.strip() else text


def _lines(width: int, style: _Style) -> Iterator[str]:
    usage, arguments = "Usage: ", "anabranch [OPTIONS] COMMAND [ARGS]..."
    yield from ("", " " + style(_METAVAR, usage) + style(_BOLD, arguments), "")
    title, _, rest = INTRODUCTION.partition("\n\n")
    yield from (f" {title}", "")
    for line in rest.split("\n"):
        yield from (" " + style(_DIM, part) for part in _wrapped(line, width - 2))
    yield ""
    yield from _panel("Options", _option_rows(width, style), width, style)
    for panel in dict.fromkeys(verb.panel for verb in VERBS.values()):
        yield from _panel(panel, _verb_rows(panel, width, style), width, style)


def _panel(title: str, rows: Iterable[tuple[str, int]], width: int, style: _Style) -> Iterator[str]:
    """A box around rows, each a text and the number of columns that it takes."""
    yield style(_DIM, f"╭─ {title} ".ljust(width - 1, "─") + "╮")
    for text, columns in rows:
        yield f"{style(_DIM, '│')} {text}{' ' * (width - 4 - columns)} {style(_DIM, '│')}"
    yield style(_DIM, "╰" + "─" * (width - 2) + "╯")


def _verb_rows(panel: str, width: int, style: _Style) -> Iterator[tuple[str, int]]:
    name_columns = max(map(len, VERBS))
    for name, verb in VERBS.items():
        if verb.panel == panel:
            cell = style(_NAME, name) + " " * (name_columns - len(name))
            yield from _beside(cell, name_columns, _wrapped(verb.summary, width - 4 - name_columns - _GAP))


def _option_rows(width: int, style: _Style) -> Iterator[tuple[str, int]]:
    flags = max(len(option.flag) for option in ROOT_OPTIONS)
    shorts = max(len(option.short) for option in ROOT_OPTIONS)
    metavars = max(len(option.metavar) for option in ROOT_OPTIONS)
    columns = flags + _GAP + shorts + 3 * _GAP + metavars  # Typer has two more, empty columns for flags that negate
    for option in ROOT_OPTIONS:
        cell = style(_NAME, option.flag) + " " * (flags - len(option.flag) + _GAP)
        cell += style(_SHORT, option.short) + " " * (shorts - len(option.short) + 3 * _GAP)
        cell += style(_METAVAR, option.metavar) + " " * (metavars - len(option.metavar))
        yield from _beside(cell, columns, _option_help(option, width - 4 - columns - _GAP), style)


def _option_help(option: RootOption, columns: int) -> list[str]:
    variable = f"[env var: {option.variable}]" if option.variable else ""
    if variable and len(option.help) + 1 + len(variable) <= columns:
        return [f"{option.help} {variable}"]
    return (
        [*_wrapped(option.help, columns), *_wrapped(variable, columns)] if variable else _wrapped(option.help, columns)
    )


def _beside(cell: str, columns: int, texts: list[str], style: _Style | None = None) -> Iterator[tuple[str, int]]:
    """The rows of a cell of so many columns, and of the lines of text beside its first row and below."""
    for number, text in enumerate(texts):
        plain, bracket, variable = text.partition("[env var:")
        shown = text if style is None or not bracket else plain + style(_VARIABLE, bracket + variable)
        yield (cell if number == 0 else " " * columns) + " " * _GAP + shown, columns + _GAP + len(text)


def _wrapped(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, break_on_hyphens=False) or [""]
