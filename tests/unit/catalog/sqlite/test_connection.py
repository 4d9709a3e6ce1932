"""Connections to a catalog in SQLite."""

from __future__ import annotations

import apsw

from anabranch.catalog.sqlite.connection import open_database


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
