"""A block of commands in a page has one command a line: wrapping it like text would make it useless."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_SECOND = re.compile(r"^(?:\$ )?anabranch .*[^|&;(\s]\s+anabranch [a-z]")


def code_lines(page: str) -> Iterator[str]:
    """The lines of a page that are code: indented, or between fences."""
    fenced = False
    for line in page.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def wrapped(page: str) -> list[str]:
    """The lines of code that begin with a command of Anabranch and hold a second one."""
    return [line for line in code_lines(page) if _SECOND.match(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_stands_on_a_line_of_its_own(page: Path) -> None:
    assert wrapped(page.read_text()) == []


def test_commands_that_were_wrapped_are_found() -> None:
    page = """
anabranch read a/b, then anabranch read c/d
    anabranch stream show a/b # who holds it anabranch stream keep a/b # makes it
    anabranch read a/b | anabranch write c/d
    anabranch read a/b --to "$(anabranch stream watermark a/b)"
"""
    assert wrapped(page) == ["anabranch stream show a/b # who holds it anabranch stream keep a/b # makes it"]
