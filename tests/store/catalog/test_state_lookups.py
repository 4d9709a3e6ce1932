"""What an operation reads of the catalog's state does not depend on rows that do not concern it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog import rows
from anabranch.catalog.port import Writing
from anabranch.catalog.state.ephemeral import EPHEMERAL
from anabranch.catalog.state.former_names import FORMER_SCOPE, FormerScope
from anabranch.catalog.state.job import JOB, JOB_MEMBER, JobState
from anabranch.catalog.state.job_plan import JOB_FILE, JobFileKey
from anabranch.catalog.state.kind import Entry
from anabranch.catalog.state.store import ATTACHMENT, UPKEEP_FAILURE, Attachment, FailureKey
from anabranch.catalog.state.transaction import TRANSACTION
from anabranch.model.ids import Micros, StreamId
from anabranch.model.transaction import TransactionState
from anabranch.store.facade import Store

MANY = 40


def fill(txn: Writing, now: Micros) -> None:
    """Rows of all kinds that are looked up, none of which concerns the operations below."""
    job, held, ended = JOB.example.value, EPHEMERAL.example.value.holders[0], TRANSACTION.example.value
    later = replace(held, until=Micros(now + 3_600_000_000))
    for number in range(MANY):
        name = f"other-{number}"
        txn.put_state(ATTACHMENT, name, Attachment(f"/elsewhere/{number}"))
        txn.put_state(EPHEMERAL, StreamId(number + 1), replace(EPHEMERAL.example.value, holders=(later,)))
        txn.put_state(FORMER_SCOPE, name, FormerScope(f"{name}-now"))
        txn.put_state(JOB, name, replace(job, id=name, target=f"s/{name}", created_at=now))
        txn.put_state(JOB, f"d{name}", replace(job, id=f"d{name}", state=JobState.DONE, created_at=now))
        txn.put_state(JOB_FILE, JobFileKey(name, 0, 0), JOB_FILE.example.value)
        member = f"{name}.000000"
        txn.put_state(JOB_MEMBER, member, replace(JOB_MEMBER.example.value, id=member))
        txn.put_state(UPKEEP_FAILURE, FailureKey(StreamId(number + 1), "another"), UPKEEP_FAILURE.example.value)
        info = replace(ended.info, id=name, state=TransactionState.COMMITTED, ended_at=now)
        txn.put_state(TRANSACTION, name, replace(ended, info=info))


def confirm_attachment(store: Store, _place: Path) -> None:
    with store.catalog.writing() as txn:
        txn.put_state(ATTACHMENT, "own", Attachment("/own", unconfirmed=True))
    assert store.archives.confirm_attachment("/own") == 1


def copy_in_a_job(store: Store, place: Path) -> None:
    with ab.connect(place / "source", create=True) as source:
        source.scopes.create("s")
        source.streams.create("s/a")
        with source.writer("s/a") as writer:
            writer.write(b"x").result()
        store.jobs.copy(source, "s/a", "s/copied").wait(60)


def archive_in_a_job(store: Store, place: Path) -> None:
    store.jobs.archive("s/a", place / "archive").wait(60)


OPERATIONS: dict[str, Callable[[Store, Path], object]] = {
    "delete a scope": lambda store, _: store.scopes.delete("empty"),
    "rename a scope": lambda store, _: store.scopes.rename("empty", "moved"),
    "sweep ephemeral streams": lambda store, _: store.ephemeral.sweep(),
    "confirm an attachment": confirm_attachment,
    "copy in a job": copy_in_a_job,
    "archive in a job": archive_in_a_job,
    "list open transactions": lambda store, _: store.transactions.list(ended=False),
    "copy a scope": lambda store, _: store.scopes.copy("s", "copied"),
}


@pytest.mark.parametrize("what", OPERATIONS)
def test_an_operation_reads_no_row_that_does_not_concern_it(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, str]] = []
    real = rows.state

    def noted(row: rows.Row) -> Entry:
        read.append((row[0], row[1]))
        return real(row)

    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.scopes.create("empty")
        store.streams.create("s/a")
        with store.writer("s/a") as writer:
            writer.write(b"x").result()
        with store.catalog.writing() as txn:
            fill(txn, store.runtime.clock.now())
        with store.catalog.reading() as reading:
            others = {(row[0], row[1]) for row in reading.export("states")}
        monkeypatch.setattr(rows, "state", noted)
        OPERATIONS[what](store, tmp_path)
    assert len(others) >= 9 * MANY
    assert not others & set(read)
