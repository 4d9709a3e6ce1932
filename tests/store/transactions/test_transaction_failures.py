"""Transactions over a store that fails for a moment: asked again, they hold all that was taken, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import AppendUncertain, Conflict, StoreUnavailable
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.transactions.transaction import Transaction
from tests.store.helpers import HookedBlobs, LostAnswers, bodies_of, sound, store_at

LARGE = 2 * limits.STAGED_INLINE_BYTES_MAX  # an event that is staged in a blob
STAGES_EACH = pytest.param(Settings(staged_bytes_max=LARGE), id="staged one by one")


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    with store_at("memory", tmp_path, settings=getattr(request, "param", None)) as store:
        store.streams.create("s/a", scaling=2)
        store.blobs = HookedBlobs(store.blobs)
        store.transactions._parts = replace(store.transactions._parts, blobs=store.blobs)
        yield store


def fail_once(store: Store) -> None:
    """Have the next write of a blob fail."""
    blobs = store.blobs
    assert isinstance(blobs, HookedBlobs)

    def fail() -> None:
        blobs.before_put = lambda: None
        raise StoreUnavailable("not now")

    blobs.before_put = fail


def body(number: int) -> bytes:
    return number.to_bytes(4, "big") + bytes(LARGE)


@pytest.mark.parametrize("end", [Transaction.flush, Transaction.commit])
def test_a_repeated_flush_after_a_failed_write_is_complete(store: Store, end: Callable[[Transaction], None]) -> None:
    with store.transaction() as txn:
        for number in range(3):
            txn.writer("s/a").write(body(number), key="k")
        fail_once(store)
        with pytest.raises(StoreUnavailable):
            end(txn)
        txn.commit()
    assert bodies_of(store, "s/a") == [body(number) for number in range(3)]
    assert sound(store)


@pytest.mark.parametrize("store", [STAGES_EACH], indirect=True)
def test_a_failed_write_excludes_only_its_event(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.transactions.writer._ROWS_BYTES_MAX", 3 * LARGE)
    taken = []
    with store.transaction() as txn:
        writer = txn.writer("s/a")
        for number in range(12):
            if number in (4, 7):
                fail_once(store)
            with suppress(StoreUnavailable):
                writer.write(body(number), key="k")
                taken.append(number)
    assert len(taken) == 10
    assert bodies_of(store, "s/a") == [body(number) for number in taken]


@pytest.mark.parametrize("store", [STAGES_EACH], indirect=True)
def test_a_failed_batch_is_not_part_of_the_transaction(store: Store) -> None:
    batch = lambda number: pa.table({"key": ["k"], "time": [number], "payload": [body(number)]})  # noqa: E731
    with store.transaction() as txn:
        writer = txn.writer("s/a")
        writer.write_batch(batch(0))
        fail_once(store)
        with pytest.raises(StoreUnavailable):
            writer.write_batch(batch(1))
        writer.write_batch(batch(2))
    assert bodies_of(store, "s/a") == [body(0), body(2)]


@pytest.mark.parametrize("landed", [True, False])
def test_a_flush_of_unknown_outcome_is_stored_once(store: Store, landed: bool) -> None:
    answers = LostAnswers(store.catalog)
    with store.transaction() as txn:
        writer = txn.writer("s/a")
        writer.write(b"0", key="k")
        txn.flush()
        writer.write(b"1", key="k")
        answers.lose(3, landed=landed)
        with pytest.raises(AppendUncertain):
            txn.flush()
        writer.write(b"2", key="k")
        answers.lose(3, landed=landed)
        with pytest.raises(AppendUncertain):
            txn.flush()
        writer.write(b"3", key="k")
    assert bodies_of(store, "s/a") == [b"0", b"1", b"2", b"3"]
    assert store.transactions.list()[0].events == {store.streams.view("s/a").info.id: 4}


def test_a_flush_missed_by_another_process_commit_raises_conflict(store: Store) -> None:
    answers = LostAnswers(store.catalog)
    txn = store.transaction()
    txn.writer("s/a").write(b"0", key="k")
    txn.flush()
    txn.writer("s/a").write(b"1", key="k")
    answers.lose(3, landed=False)
    with pytest.raises(AppendUncertain):
        txn.flush()
    store.transaction(txn.id).commit()
    with pytest.raises(Conflict, match="without 1 events written by this one"):
        txn.commit()
    assert bodies_of(store, "s/a") == [b"0"]
