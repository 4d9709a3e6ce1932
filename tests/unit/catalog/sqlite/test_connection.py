"""Connections to a catalog in SQLite."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from anabranch.catalog.sqlite.connection import migrate, open_database
from anabranch.errors import StoreUnavailable


def test_other_values_of_parameters_need_no_other_plan() -> None:
    database = open_database(":memory:")
    database.execute("CREATE TABLE t (log INTEGER, start INTEGER, PRIMARY KEY (log, start)) WITHOUT ROWID")
    database.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    prepared = 0

    def authorize(*_: object) -> int:  # SQLite asks this whenever it prepares a statement
        nonlocal prepared
        prepared += 1
        return apsw.SQLITE_OK

    database.authorizer = authorize
    counts = []
    for log in (1, 2):
        found = database.execute("SELECT start FROM t WHERE log = ? AND start < 9 LIMIT ?", (log, log)).fetchall()
        assert found == [(log,)]
        counts.append(prepared)
    assert counts[1] == counts[0] > 0


def test_a_file_system_that_can_hold_no_write_ahead_log_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "catalog.db")
    without_shared_memory = apsw.Connection(path, vfs="unix-dotfile")
    with pytest.raises(StoreUnavailable, match="expected a local disk, so move the store to one, or use PostgreSQL"):
        migrate(without_shared_memory, path)
    assert without_shared_memory.pragma("user_version") == 0
    without_shared_memory.close()
