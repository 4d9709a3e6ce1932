"""A store's SQLite file, behind the store's back.

By the same library that the store has: POSIX drops all of a process's locks on a file when any of its handles is closed,
which one library knows of itself, and two in one process not of each other.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from anabranch.catalog.digests import row_digest
from anabranch.catalog.sqlite.connection import APPLICATION_ID
from anabranch.catalog.tables import BY_NAME


def change(file: Path, statement: str, *values: object, digested: bool = True) -> int:
    """Run a statement with `?` for values; how many rows it changed. Makes the file where it is missing.

    With `digested` the digests of all rows are made anew, as if the store had written them like that: for tests of what is
    said about rows that contradict each other."""
    with closing(apsw.Connection(str(file))) as database:
        database.set_busy_timeout(60_000)
        database.execute(statement, values)
        changed = int(database.changes())
        if digested and database.pragma("application_id") == APPLICATION_ID:
            database.create_scalar_function("row_digest", lambda *row: row_digest(row))
            for table in BY_NAME.values():
                database.execute(
                    f"update {table.name} set digest = row_digest({', '.join(digested_columns(table.name))})"
                )
        return changed


def digested_columns(table: str) -> list[str]:
    """What a row's digest is made of, in SQL."""
    columns = [f'"{column.name}"' for column in BY_NAME[table].columns if not column.derived and column.name != "data"]
    if table == "extents":
        columns.insert(4, "(select key from blobs where id = blob)")
    return columns


def ask(file: Path, statement: str) -> list[tuple[Any, ...]]:
    """The rows that a statement gives."""
    with closing(apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)) as database:
        return list(database.execute(statement))
