"""The tutorial, and the page on tracing, do what they say: every command is run, and prints what the page shows."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.documents import Command, File, follow, matches, steps

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.spark
@pytest.mark.process
def test_the_tutorial_can_be_followed_from_nothing(tmp_path: Path) -> None:
    assert follow(DOCS / "tutorial" / "index.md", tmp_path) >= 12


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.process
def test_the_page_on_deployed_queries_can_be_followed(tmp_path: Path) -> None:
    try:
        assert follow(DOCS / "how-to" / "deploy-queries.md", tmp_path) == 15
    finally:
        pid = tmp_path / "host.pid"
        with suppress(ProcessLookupError):  # the page ends it, unless it fails before
            os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.process
def test_the_page_on_tracing_shows_what_its_program_prints(tmp_path: Path) -> None:
    assert follow(DOCS / "how-to" / "tracing.md", tmp_path) == 1


@pytest.mark.slow
@pytest.mark.process
def test_the_page_on_code_near_the_data_can_be_followed(tmp_path: Path) -> None:
    assert follow(DOCS / "how-to" / "run-code-near-the-data.md", tmp_path) == 8


@pytest.mark.process
def test_the_page_on_sketches_can_be_followed(tmp_path: Path) -> None:
    assert follow(DOCS / "how-to" / "sketches.md", tmp_path) == 6


@pytest.mark.process
@pytest.mark.parametrize(("page", "commands"), [("write-and-read", 1), ("backup", 11), ("encryption", 8)])
def test_a_page_on_a_store_can_be_followed(page: str, commands: int, tmp_path: Path) -> None:
    assert follow(DOCS / "how-to" / f"{page}.md", tmp_path) == commands


@pytest.mark.process
def test_the_page_on_checks_can_be_followed(tmp_path: Path) -> None:
    assert follow(DOCS / "how-to" / "checks.md", tmp_path) == 7


@pytest.mark.slow
@pytest.mark.process
def test_the_page_on_sql_of_other_systems_can_be_followed(tmp_path: Path) -> None:
    assert follow(DOCS / "how-to" / "bring-your-sql.md", tmp_path) == 8


def test_files_and_commands_of_a_page_are_found_in_order() -> None:
    page = (
        '```python title="a.py"\nprint(1)\n```\ntext\n```console\n$ python a.py\n1\n$ true\n```\n```sh\nnot run\n```\n'
    )
    assert list(steps(page)) == [File("a.py", "print(1)\n"), Command("python a.py", "1\n"), Command("true", "")]


def test_another_output_than_the_shown_one_is_noticed(tmp_path: Path) -> None:
    assert matches("600 events written, in 0.2 s", "…600 events…")
    assert not matches("599 events written", "…600 events…")
    page = tmp_path / "page.md"
    for wrong in ("```console\n$ echo 1\n2\n```\n", "```console\n$ false\n```\n"):
        page.write_text(wrong)
        with pytest.raises(AssertionError):
            follow(page, tmp_path)
