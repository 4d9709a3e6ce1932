"""What a connection knows of logs and writers: kept from commit to commit, forgotten after anything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from anabranch import limits
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import CorruptCatalog, StoreUnavailable
from anabranch.model.append import Appended
from anabranch.runtime.ports import Runtime
from tests.contracts.catalog.samples import append, new_stream, part


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqliteCatalog]:
    made = SqliteCatalog(tmp_path, Runtime())
    yield made
    made.close()


def test_a_commit_after_a_commit_reads_no_state(catalog: SqliteCatalog) -> None:
    logs = [new_stream(catalog), new_stream(catalog, 78, "iot/other")]
    statements: list[str] = []

    def batches(first: int) -> None:
        append(catalog, *(part(log, writer="w", first=first) for log in logs))

    batches(0)
    catalog._database.set_exec_trace(lambda cursor, sql, bindings: statements.append(sql.split()[0]) or True)  # type: ignore[func-returns-value]
    batches(1)
    assert "select" not in statements and "insert" in statements
    statements.clear()
    new_stream(catalog, 79, "iot/third")
    statements.clear()
    batches(2)
    assert "select" in statements


def test_a_commit_that_fails_leaves_nothing_known(catalog: SqliteCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_stream(catalog)
    append(catalog, part(log, writer="w", first=0))

    def fail() -> None:
        raise StoreUnavailable("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "_finish", fail)
        with pytest.raises(StoreUnavailable):
            append(catalog, part(log, writer="w", first=1))
    (verdict,) = append(catalog, part(log, writer="w", first=1))
    assert isinstance(verdict, Appended) and (verdict.start, verdict.duplicate) == (1, False)


def test_a_row_that_is_damaged_between_two_commits_is_noticed(catalog: SqliteCatalog, tmp_path: Path) -> None:
    log = new_stream(catalog)
    append(catalog, part(log))
    other = apsw.Connection(str(tmp_path / "catalog.db"))
    other.execute("update logs set length = 7")
    other.close()
    with pytest.raises(CorruptCatalog):
        append(catalog, part(log))


def test_no_more_is_kept_than_the_limit_allows(catalog: SqliteCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KNOWN_STATES_MAX", 4)
    logs = [new_stream(catalog, 77 + number, f"iot/s{number}") for number in range(4)]
    append(catalog, *(part(log, writer="w", first=0) for log in logs))
    assert len(catalog._known.logs) == 4
    append(catalog, part(logs[0], writer="w", first=1))
    assert list(catalog._known.logs) == logs[:1]
