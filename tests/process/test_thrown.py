"""Exceptions thrown into threads that use the store: handlers of signals that raise, and time limits of frameworks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.parameters import rest_is_slow

OPERATIONS = ["write", "write_large", "write_batch", "flush", "close", "transaction", "read"]
EVERY = 3  # places; the exception at one is mostly the one at the next
SOME = 211


@pytest.mark.parametrize("stride", [SOME, pytest.param(EVERY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", rest_is_slow(["signal", "thread"]))
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_thrown_in_anywhere_hangs_nothing_and_loses_nothing(
    tmp_path: Path, operation: str, how: str, stride: int
) -> None:
    command = [sys.executable, "-m", "tests.process.thrown", operation, str(tmp_path / "river"), how, str(stride)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
