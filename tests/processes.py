"""Which tests run in the same process where several processes run all of them.

A file's tests run in one process. So do the files that share a Spark session, on as many processes as there are processors:
each further session costs half a minute of a processor, for its start and for the first queries, which Java has not compiled
yet."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

PROCESSES_A_PROCESSOR = 3  # as `./dev test` starts them

_SESSION = re.compile(r"\b(s3_)?spark: SparkSession\b")


def session_files(folder: Path) -> list[str]:
    """The files of tests in `folder` that use the shared session, by their names from the repository."""
    return sorted(
        f"tests/{folder.name}/{file.name}" for file in folder.glob("test_*.py") if _SESSION.search(file.read_text())
    )


def spread(files: Iterable[str], sessions: int) -> dict[str, str]:
    """The name of the session for each of the files, which take turns."""
    return {file: f"Spark session {number % sessions}" for number, file in enumerate(files)}


class SharedSessions(LoadFileScheduling):
    """Hands out files of tests, and those that share a Spark session together."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        """A session for each of the processors that `./dev test` has counted."""
        super().__init__(config, log)
        sessions = max(1, (config.option.numprocesses or 1) // PROCESSES_A_PROCESSOR)
        self._sessions = spread(session_files(Path(__file__).parent / "spark"), sessions)

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return self._sessions.get(file, file)
