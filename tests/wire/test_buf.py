"""`buf` has nothing to say against the protocol (`buf.yaml` lists the exceptions), and finds no break of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.npm import npm_folder
from tests.wire.generate import DESCRIPTORS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def buf() -> Path:
    return npm_folder("buf-1.75.0", "@bufbuild/buf@1.75.0") / "node_modules" / ".bin" / "buf"


@pytest.mark.parametrize(
    "arguments", [("lint",), ("breaking", "--against", str(DESCRIPTORS))], ids=lambda each: each[0]
)
def test_buf_finds_nothing(buf: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run([buf, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
