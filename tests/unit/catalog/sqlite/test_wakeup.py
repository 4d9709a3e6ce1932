"""The listener for other processes' commits."""

from __future__ import annotations

import errno
import socket
import sys
from pathlib import Path

import pytest

from anabranch.catalog.sqlite.wakeup import FileListener
from anabranch.runtime.ports import Runtime


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="files can't be watched")
def test_a_listener_that_can_not_be_made_keeps_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = tmp_path / "file"
    watched.touch()

    def refuse() -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(socket, "socketpair", refuse)
    before = open_files()
    with pytest.raises(OSError, match="too many"):
        FileListener(watched, Runtime(), lambda: None)
    assert open_files() == before
