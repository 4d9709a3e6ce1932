"""The files of a few failed tests that share the machine with others are run a second time; nothing else is, and what fails twice has failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tooling import second_run

pytestmark = pytest.mark.process

FAILS_ONCE = """
from pathlib import Path

def test_once():
    before = Path("before")
    if not before.exists():
        before.touch()
        raise AssertionError("the first time")
"""
GOES_ON = """
made = []

def test_first():
    made.append(1)

def test_second():
    assert made == [1]
    once()
"""
FAILS = "def test_always():\n    raise AssertionError('each time')\n"


def run(folder: Path, tests: dict[str, str]) -> tuple[int, str]:
    """Run `tests` (file -> text), which fail, and then what CI runs behind them: its exit code and what it printed."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for file, text in tests.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    first = subprocess.run([sys.executable, "-m", "pytest", "tests"], cwd=folder, capture_output=True, check=False)
    assert first.returncode == 1, first.stdout.decode()
    command = [sys.executable, second_run.__file__]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_test_that_passes_alone_is_named_as_unreliable(tmp_path: Path) -> None:
    code, printed = run(tmp_path, {"tests/spark/test_it.py": FAILS_ONCE})
    assert code == 0
    assert "UNRELIABLE: failed among the others, passed alone: tests/spark/test_it.py::test_once" in printed


def test_a_test_that_goes_on_where_another_ended_is_run_behind_it(tmp_path: Path) -> None:
    code, printed = run(tmp_path, {"tests/spark/test_it.py": FAILS_ONCE.replace("def test_once", "def once") + GOES_ON})
    assert code == 0
    assert "passed alone: tests/spark/test_it.py::test_second" in printed


@pytest.mark.slow
def test_a_test_that_fails_twice_has_failed(tmp_path: Path) -> None:
    code, printed = run(tmp_path, {"tests/spark/test_once.py": FAILS_ONCE, "tests/cli/test_it.py": FAILS})
    assert code == 1
    assert "UNRELIABLE" not in printed


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (["tests/unit/core/test_it.py::test_once"], "test_once does not depend on the load of the machine"),
        (
            [f"tests/cli/test_{number}.py::test_it" for number in range(4)],
            "tests of 4 files failed; at most 3 are run again",
        ),
        (["tests/cli/test_it.py"], "does not depend on the load of the machine"),  # a file that can't be imported
        ([], "no failed test is on record"),
    ],
)
def test_nothing_else_is_run_again(failed: list[str], reason: str) -> None:
    refusal = second_run.why_not(failed)
    assert refusal is not None
    assert reason in refusal
