"""A store's SQLite file, behind the store's back.

By the same library that the store has: POSIX drops all of a process's locks on a file when any of its handles is closed,
which one library knows of itself, and two in one process not of each other.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw


def change(file: Path, statement: str, *values: object) -> int:
    """Run a statement with `?` for values; how many rows it changed. Makes the file where it is missing."""
    with closing(apsw.Connection(str(file))) as database:
        database.set_busy_timeout(60_000)
        database.execute(statement, values)
        return int(database.changes())


def ask(file: Path, statement: str) -> list[tuple[Any, ...]]:
    """The rows that a statement gives."""
    with closing(apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)) as database:
        return list(database.execute(statement))
