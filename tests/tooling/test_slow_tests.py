"""A plain run leaves out the tests marked `slow`, and says how many; `--all`, `-m slow` and a test's own name run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

TESTS = """
import pytest
from hypothesis import settings

def test_quick():
    pass

@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_slow(number):
    pass

def test_examples_are_fixed(request):
    assert settings.default.derandomize is not request.config.getoption("--all")
"""


def run(folder: Path, *arguments: str, ci: str = "") -> tuple[str, int]:
    """How the tests ended, and how many were said to be left out. `ci` is the variable by which libraries know a CI host."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: …\n")
    (folder / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"CI": ci}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    left_out = re.search(r"slow tests left to ./dev test --all: (\d+)", done.stdout)
    *_, ended = done.stdout.splitlines()
    found = re.search(r"(\d+ passed)", ended)
    assert found is not None, done.stdout + done.stderr
    return found[1], int(left_out[1]) if left_out else 0


@pytest.mark.parametrize(
    ("processes", "ci"),
    [((), ""), ((), "true"), (("--numprocesses", "2"), "")],
    ids=["one process", "one process on a CI host", "two processes"],
)
def test_a_plain_run_leaves_out_the_slow_tests_and_says_how_many(
    tmp_path: Path, processes: tuple[str, ...], ci: str
) -> None:
    assert run(tmp_path, *processes, ci=ci) == ("2 passed", 2)
    assert run(tmp_path, "--all", *processes, ci=ci) == ("4 passed", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "ended"),
    [
        (["-m", "slow"], ("2 passed", 0)),
        (["test_some.py::test_slow"], ("2 passed", 0)),
        (["test_some.py::test_slow[2]"], ("1 passed", 0)),
        (["-k", "quick"], ("1 passed", 0)),
    ],
)
def test_a_slow_test_runs_where_it_is_asked_for(tmp_path: Path, arguments: list[str], ended: tuple[str, int]) -> None:
    assert run(tmp_path, *arguments) == ended
