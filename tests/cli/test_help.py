"""What `--help` says, of every verb."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from anabranch.cli.tree import app


def verbs(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from verbs(below, *path, name)
    if path and not hasattr(command, "commands") and not command.hidden:
        yield path, command


VERBS = dict(verbs(get_command(app)))


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_a_verb_teaches_by_example_in_words_that_break_where_the_terminal_does(path: tuple[str, ...]) -> None:
    command = VERBS[path]
    prose, _, examples = command.help.partition("\n\nExample")
    assert re.search(rf"^  .*anabranch .*\b{' '.join(path)}\b", examples, re.MULTILINE)
    for paragraph in prose.split("\n\n"):
        assert "\n" not in paragraph or paragraph.startswith("  ")
    for text in (prose, *(option.help or "" for option in command.params)):
        # Brackets that are not escaped are markup, of which nothing is shown.
        assert not re.search(r"(?<!\\)\[[a-z#/@]", text), text
