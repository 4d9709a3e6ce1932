"""Watching a file: readable after a write, by whomever, and silent else."""

from __future__ import annotations

import select
import sys
from pathlib import Path

import pytest

from anabranch.runtime.file_watch import FileWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


def readable(watch: FileWatch, timeout_s: float) -> bool:
    return bool(select.select([watch], [], [], timeout_s)[0])


def test_a_write_is_noticed_and_forgotten_once_drained(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    watch = FileWatch(file)
    assert not readable(watch, 0)
    for _ in range(600):  # more than one read of events
        file.write_bytes(b"x")
    assert readable(watch, 60)
    watch.drain()
    assert not readable(watch, 0)
    watch.drain()
    file.read_bytes()
    assert not readable(watch, 0)
    watch.close()


def test_a_file_that_does_not_exist_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="inotify_add_watch"):
        FileWatch(tmp_path / "none")
