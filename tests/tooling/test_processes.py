"""Where several processes run all tests, the files that share a Spark session are run by few of them."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import session_files, spread

TESTS = Path(__file__).parents[1]
TEST = """
import os

def test_it(spark: SparkSession):
    with open("processes", "a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def uses_session(file: Path) -> bool:
    """Whether a function of a file of tests takes the fixture of the session."""
    functions = (each for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.FunctionDef))
    return any(argument.arg in ("spark", "s3_spark") for each in functions for argument in each.args.args)


def test_each_file_that_takes_the_session_is_known() -> None:
    taking = [f"tests/spark/{file.name}" for file in (TESTS / "spark").glob("test_*.py") if uses_session(file)]
    assert session_files(TESTS / "spark") == sorted(taking)


def test_files_take_turns_with_the_sessions() -> None:
    assert list(spread(["a", "b", "c"], 2).values()) == ["Spark session 0", "Spark session 1", "Spark session 0"]


@pytest.mark.process
def test_files_that_share_a_session_run_in_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    (folder / "spark").mkdir(parents=True)
    for name in ("conftest.py", "processes.py"):
        shutil.copy(TESTS / name, folder)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = --import-mode=importlib\n")
    (folder / "spark" / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef spark():\n    return None\n"
    )
    for name in ("test_a", "test_b"):
        (folder / "spark" / f"{name}.py").write_text("from __future__ import annotations\n" + TEST)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "--numprocesses", "2", "--dist", "loadfile"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        [*command, "--no-loadscope-reorder"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert len(set((tmp_path / "processes").read_text().split())) == 1
