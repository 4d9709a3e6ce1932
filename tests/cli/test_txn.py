"""`anabranch txn`: what is under way, what became of the rest, and an end for one that hangs."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.errors import TransactionAborted
from tests.cli.kit import Line


def test_transactions_are_listed_shown_and_aborted(line: Line) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/raw")
    assert "no open transaction" in line("txn", "list").err
    with ab.connect(line.store, create=True) as store:
        with store.transaction() as done:
            done.writer("iot/raw").write("kept")
            assert "1 transaction begin with ''" in line.refused("txn", "abort", "", "--yes")
        hanging = store.transaction()
        hanging.writer("iot/raw").write("never")
        hanging.flush()
        assert [each["id"] for each in line("txn", "list", "--json").json] == [hanging.id]
        assert {each["id"]: each["state"] for each in line("txn", "list", "--all", "--json").json} == {
            done.id: "committed",
            hanging.id: "open",
        }
        assert hanging.id in line("txn", "list").out
        shown = line("txn", "show", hanging.id[:10]).out
        assert "open" in shown
        assert "iot/raw: 1 event" in shown
        assert line("txn", "abort", hanging.id[:10], "--yes").err == f"transaction {hanging.id} is aborted\n"
        with pytest.raises(TransactionAborted, match="from the command line"):
            hanging.commit()
        assert line("txn", "abort", hanging.id).err == f"transaction {hanging.id} is aborted\n"
        assert "already committed" in line.refused("txn", "abort", done.id)
        assert "2 transactions begin with ''" in line.refused("txn", "abort", "")
    assert "transaction 'f00' not found" in line.refused("txn", "show", "f00")
    assert [row["payload"] for row in line("read", "iot/raw").rows] == ["kept"]
