"""The folder in memory for the files of a run of all tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("nested", [False, True], ids=["the run itself", "a pytest that a test starts"])
def test_the_run_that_it_was_made_for_deletes_it(tmp_path: Path, nested: bool) -> None:
    run = f"'{sys.executable}' -m pytest --collect-only -q tests/rules/test_class_names.py"
    script = f"""
        export ANABRANCH_TEST_FILES='{tmp_path}'/anabranch-tests-$$ && mkdir "$ANABRANCH_TEST_FILES"
        {run if nested else f"exec {run}"}
        exit"""
    done = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert bool(list(tmp_path.iterdir())) is nested
