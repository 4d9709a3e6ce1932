"""Transactions: all of it appears at once or never, whoever dies, scales, seals or sweeps meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.blobs.local import LocalBlobs
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.state.transaction import FLUSH, TRANSACTION, StoredTransaction
from anabranch.errors import (
    Closed,
    Conflict,
    InvalidArgument,
    SchemaMismatch,
    StreamNotFound,
    StreamSealed,
    TransactionAborted,
    TransactionNotFound,
)
from anabranch.model.transaction import TransactionState
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.keys import new_key_line
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.streams.publish import publish
from anabranch.testing.clock import ManualClock
from anabranch.transactions import record as row
from anabranch.transactions import sweep, transaction
from anabranch.transactions.flushed import flushed_batches
from anabranch.transactions.writer import _ROWS_BYTES_MAX
from tests.clocks import runtime_by
from tests.postgres_server import drop, fresh_url
from tests.store.kit import SECOND
from tests.waiting import until_ended

COLUMNS = pa.schema([("device", pa.string()), ("n", pa.int64())])


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    if request.param == "sqlite":
        yield str(tmp_path / "store"), str(tmp_path / "store")
    else:
        url = fresh_url()
        yield url, str(tmp_path / "blobs")
        drop(url)


def connect(place: tuple[str, str]) -> Store:
    url, blobs = place
    return ab.connect(url, create=True) if url == blobs else ab.connect(url, blobs=blobs, create=True)


@pytest.fixture
def store(place: tuple[str, str]) -> Iterator[Store]:
    with connect(place) as store:
        make(store)
        yield store


def make(store: Store) -> None:
    store.scopes.create("s")
    store.streams.create("s/a", scaling=3)
    store.streams.create("s/b")
    store.streams.create("s/typed", schema=COLUMNS, key="device", scaling=2)


def bodies(store: Store, name: str) -> list[object]:
    with store.reader(name) as reader:
        return sorted((event.body for event in reader), key=str)


def kept_of(store: Store, ident: str) -> object:
    """What the catalog keeps of a transaction's flushes."""
    with store.catalog.reading() as reading:
        return flushed_batches(reading, ident)


def test_events_of_several_streams_appear_together_at_the_commit(store: Store) -> None:
    with store.transaction() as txn:
        for n in range(20):
            txn.writer("s/a").write(f"{n:02}", key=f"k{n}")
        txn.writer("s/typed").write({"device": "d", "n": 1})
        txn.writer("s/typed").write_batch(pa.table({"device": ["d", "e"], "n": [2, 3]}, schema=COLUMNS))
        txn.flush()
        txn.writer("s/typed").write({"device": "d", "n": 4})
        for name in ("s/a", "s/typed"):
            assert bodies(store, name) == []
    assert bodies(store, "s/a") == [f"{n:02}".encode() for n in range(20)]
    with store.reader("s/typed") as reader:
        events = list(reader)
    assert [event.body["n"] for event in events if event.body["device"] == "d"] == [1, 2, 4]
    assert txn.info.state is TransactionState.COMMITTED
    assert sum(txn.info.events.values()) == 24
    assert kept_of(store, txn.id) == {}
    assert list(store.check()) == []


def test_an_exception_in_the_block_aborts(store: Store) -> None:
    txn = store.transaction()

    def fail() -> None:
        with txn:
            txn.writer("s/a").write("never", key="k")
            txn.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert bodies(store, "s/a") == []
    assert txn.info.state is TransactionState.ABORTED
    assert txn.info.reason == "RuntimeError in its with block"
    assert kept_of(store, txn.id) == {}
    with pytest.raises(TransactionAborted):
        txn.writer("s/a")
    with pytest.raises(TransactionAborted):
        txn.commit()
    txn.abort()


def test_another_holder_resumes_with_the_flushed_events(place: tuple[str, str], store: Store) -> None:
    txn = store.transaction()
    txn.writer("s/a").write("flushed", key="k")
    txn.flush()
    txn.writer("s/a").write("lost with its holder", key="k")
    with connect(place) as other, other.transaction(txn.id) as again:
        assert sum(again.info.events.values()) == 1
        again.writer("s/b").write("added elsewhere")
    assert bodies(store, "s/a") == [b"flushed"]
    assert bodies(store, "s/b") == [b"added elsewhere"]
    with pytest.raises(Conflict, match="without 1 events"):
        txn.commit()
    with pytest.raises(InvalidArgument, match="already committed"):
        txn.abort()


def test_a_concurrent_flush_by_another_process_is_committed_too(
    place: tuple[str, str], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = store.transaction()
    txn.writer("s/a").write("mine", key="k")
    raced: list[bool] = []
    with connect(place) as other:
        again = other.transaction(txn.id)
        again.writer("s/a").write("theirs", key="k")

        def late(*arguments: object, **named: object) -> object:
            if not raced:
                raced.append(True)
                again.flush()
            return publish(*arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(transaction, "publish", late)
        txn.commit()
    assert raced
    assert bodies(store, "s/a") == [b"mine", b"theirs"]


def test_a_repeated_commit_is_harmless(place: tuple[str, str], store: Store) -> None:
    txn = store.transaction()
    txn.writer("s/a").write("once", key="k")
    txn.flush()
    with connect(place) as other:
        again = other.transaction(txn.id)
        txn.commit()
        txn.commit()
        again.commit()
    assert bodies(store, "s/a") == [b"once"]
    with pytest.raises(Closed):
        txn.writer("s/a")
    with pytest.raises(InvalidArgument):
        store.transaction(txn.id)


def test_scaling_between_the_writes_and_the_commit_keeps_the_order_of_each_key(store: Store) -> None:
    with store.transaction() as txn:
        for n in range(30):
            txn.writer("s/a").write(f"{n:02}", key=f"k{n % 5}")
            if n == 10:
                txn.flush()
                store.streams.scale("s/a", 5)
            if n == 20:
                store.streams.scale("s/a", 2)
    with store.reader("s/a") as reader:
        events = [(event.key, event.body) for event in reader]
    for key in {key for key, _ in events}:
        mine = [body for each, body in events if each == key]
        assert len(mine) == 6
        assert mine == sorted(mine)
    assert list(store.check()) == []


def test_a_stream_that_was_sealed_or_deleted_refuses_the_whole_commit(store: Store) -> None:
    for refuse, error in ((store.streams.seal, StreamSealed), (store.streams.delete, StreamNotFound)):
        txn = store.transaction()
        txn.writer("s/a").write("never", key="k")
        txn.writer("s/b").write("never", key="k")
        refuse("s/b")
        with pytest.raises(error, match="s/b"):
            txn.__exit__(None, None, None)
        assert txn.info.state is TransactionState.ABORTED
        assert bodies(store, "s/a") == []
        if store.streams.exists("s/b"):
            with pytest.raises(StreamSealed):
                store.transaction().writer("s/b")
            store.streams.delete("s/b")
        store.streams.create("s/b")


def test_renamed_and_truncated_streams_get_their_events(store: Store) -> None:
    with store.writer("s/a") as writer:
        writer.write("before", key="k")
    with store.transaction() as txn:
        writing = txn.writer("s/a")
        writing.write("1", key="k")
        txn.flush()
        store.streams.truncate("s/a", store.cuts.tail("s/a"))
        store.streams.rename("s/a", "s/renamed")
        writing.write("2", key="k")
    assert bodies(store, "s/renamed") == [b"1", b"2"]


def test_a_concurrent_write_is_committed_or_refused(store: Store) -> None:
    txn = store.transaction()
    writer = txn.writer("s/a")
    begun, taken = threading.Event(), []

    def write() -> None:
        with contextlib.suppress(Closed):
            for n in itertools.count():
                writer.write(f"{n}", key="k")
                taken.append(n)
                begun.set()

    writing = threading.Thread(target=write)
    writing.start()
    begun.wait()
    txn.commit()
    until_ended(writing)
    with pytest.raises(Closed):
        writer.write("late")
    assert len(bodies(store, "s/a")) == len(taken)


def test_a_transaction_can_be_written_to_after_a_refused_commit(store: Store) -> None:
    txn = store.transaction()
    writer = txn.writer("s/a")
    store.streams.create("s/c")
    txn.writer("s/c").write("never")
    store.streams.seal("s/c")
    with pytest.raises(StreamSealed):
        txn.commit()
    writer.write("taken")
    txn.abort()


def test_a_value_out_of_its_columns_range_is_refused_alone(store: Store) -> None:
    kinds = {
        "small": pa.int8(),
        "positive": pa.uint64(),
        "whole": pa.int64(),
        "price": pa.decimal128(5, 2),
        "real": pa.float64(),
        "text": pa.string(),
        "span": pa.duration("ns"),
    }
    beyond = {
        "small": 128,
        "positive": -1,
        "whole": 1 << 63,
        "price": Decimal("1234.5"),
        "real": (1 << 53) + 1,
        "text": "\ud800",
        "span": timedelta(days=110_000),
    }
    within = {
        "small": -128,
        "positive": (1 << 64) - 1,
        "whole": -(1 << 63),
        "price": Decimal("-999.99"),
        "real": 1 << 53,
        "text": "ä",
        "span": timedelta(microseconds=1),
    }
    store.streams.create("s/kinds", schema=pa.schema(list(kinds.items())))
    with store.transaction() as txn:
        writer = txn.writer("s/kinds")
        writer.write(within)
        for name, value in beyond.items():
            with pytest.raises(SchemaMismatch, match=f"column '{name}' takes"):
                writer.write({name: value})
        writer.write({})
    with store.reader("s/kinds") as reader:
        assert {event.body["small"] for event in reader} == {-128, None}


def test_nothing_is_accepted_once_the_store_is_closed(place: tuple[str, str]) -> None:
    with connect(place) as store:
        if not store.streams.exists("s/a"):
            make(store)
        txn = store.transaction()
        writer = txn.writer("s/a")
        writer.write("lost")
    for refused in (lambda: writer.write("late"), lambda: txn.writer("s/a"), txn.ping, txn.flush, txn.commit):
        with pytest.raises(Closed):
            refused()


def test_a_long_transaction_leaves_no_more_spans_or_segments(store: Store) -> None:
    before = store.streams.view("s/a")
    with store.transaction() as txn:
        for n in range(5):
            txn.writer("s/a").write(f"{n}", key="k")
            txn.flush()
    after = store.streams.view("s/a")
    assert after.spans == before.spans
    assert after.segments == before.segments


def test_large_single_events_are_staged_early(store: Store) -> None:
    count = 2 * _ROWS_BYTES_MAX // 1_000_000 + 1
    with store.transaction() as txn:
        for n in range(count):
            txn.writer("s/b").write(bytes([n]) * 1_000_000)
    assert [body[0] for body in bodies(store, "s/b")] == list(range(count))  # type: ignore[index]


def test_an_encrypted_store_stages_no_plain_text(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(new_key_line("k1", SystemIds()))
    keys.chmod(0o600)
    with ab.connect(tmp_path / "store", keys=f"file:{keys}", create=True) as store:
        make(store)
        with store.transaction() as txn:
            txn.writer("s/b").write(b"very secret words")
            txn.flush()
            txn.writer("s/b").write(b"very secret words")
        assert bodies(store, "s/b") == [b"very secret words"] * 2
    found = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert found
    assert not any(b"secret words" in path.read_bytes() for path in found)


class Timed:
    """A store whose clock the test moves."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        folder.mkdir()
        runtime = runtime_by(self.clock, settings=Settings(inline_bytes_max=0))
        self.store = Store(SqliteCatalog(folder, runtime), LocalBlobs(folder, runtime), runtime)
        make(self.store)


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Timed]:
    timed = Timed(tmp_path / "store")
    yield timed
    timed.store.close()


def test_an_expired_transaction_is_aborted_and_its_blobs_are_collected(timed: Timed) -> None:
    txn = timed.store.transaction(lease_s=60)
    txn.writer("s/a").write("never", key="k")
    txn.flush()
    timed.clock.pass_time(59 * SECOND)
    assert timed.store.collect(horizon_us=0).orphans == 0
    assert txn.info.state is TransactionState.OPEN
    timed.clock.pass_time(2 * SECOND)
    removed = timed.store.collect(horizon_us=0).orphans
    assert (txn.info.state, txn.info.reason) == (TransactionState.ABORTED, "its lease expired")
    for refused in (txn.commit, txn.ping, txn.flush):
        with pytest.raises(TransactionAborted, match="its lease expired"):
            refused()
    for _ in range(2):
        timed.clock.pass_time(SECOND)
        removed += timed.store.collect(horizon_us=0).orphans
    assert removed == 1
    timed.clock.pass_time(8 * 24 * 3600 * SECOND)
    timed.store.collect()
    assert timed.store.transactions.list() == []
    with pytest.raises(TransactionNotFound):
        timed.store.transaction(txn.id)


def test_ended_transactions_are_removed_in_the_order_of_their_ends(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_PAGE", 2)
    ended = []
    for n in range(5):
        with timed.store.transaction() as txn:
            txn.writer("s/a").write(f"{n}", key="k")
        ended.append(txn.id)
        timed.clock.pass_time(24 * 3600 * SECOND)
    begun_first = timed.store.transaction(lease_s=60)
    for days, left in ((1, ended), (1, ended[1:]), (1, ended[2:]), (2, ended[4:])):
        timed.clock.pass_time(days * 24 * 3600 * SECOND)
        timed.store.collect()
        assert [each.id for each in timed.store.transactions.list()] == [*left, begun_first.id]
        assert timed.store.transactions.list(ended=False) == []
    timed.clock.pass_time(9 * 24 * 3600 * SECOND)
    timed.store.collect()
    with timed.store.catalog.reading() as reading:
        kinds = [row[0] for row in reading.export("states")]
    assert [kind for kind in kinds if kind in (TRANSACTION.name, FLUSH.name)] == []
    assert bodies(timed.store, "s/a") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_sweep_does_not_read_recently_ended_transactions(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        timed.store.transaction().abort()
    alive = timed.store.transaction()
    looked: list[str] = []
    real = row._row

    def noted(stored: StoredTransaction) -> row.TransactionRow:
        looked.append(stored.info.id)
        return real(stored)

    monkeypatch.setattr(row, "_row", noted)
    timed.store.collect()
    assert looked == [alive.id]


def test_writing_and_pinging_renew_the_lease(timed: Timed) -> None:
    with timed.store.transaction(lease_s=60) as txn:
        for n in range(6):
            txn.writer("s/a").write(f"{n}", key="k")
            txn.flush()
            for _ in range(2):
                timed.clock.pass_time(50 * SECOND)
                txn.ping()
                timed.store.collect(horizon_us=0)
        for n in range(6, 12):
            timed.clock.pass_time(40 * SECOND)
            txn.writer("s/a").write(f"{n}", key="k")
            timed.store.collect(horizon_us=0)
    with timed.store.reader("s/a") as reader:
        assert [int(event.body) for event in reader] == list(range(12))
    assert list(timed.store.check()) == []


def test_a_commit_after_expiry_but_before_the_sweep_succeeds(timed: Timed) -> None:
    with timed.store.transaction(lease_s=60) as txn:
        txn.writer("s/a").write("late", key="k")
        timed.clock.pass_time(61 * SECOND)
    assert bodies(timed.store, "s/a") == [b"late"]
    assert timed.store.collect(horizon_us=0)
    assert txn.info.state is TransactionState.COMMITTED


@pytest.mark.parametrize(
    "wrong",
    [
        1e18,
        pytest.param(10**400, id="huge"),
        pytest.param(-(10**400), id="minus huge"),
        0,
        -1.0,
        float("nan"),
        float("inf"),
        "soon",
    ],
)
def test_an_invalid_lease_is_refused(timed: Timed, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="seconds"):
        timed.store.transaction(lease_s=wrong)


def test_unknown_and_ended_transactions_raise_different_errors(timed: Timed) -> None:
    with pytest.raises(TransactionNotFound):
        timed.store.transaction("no-such")


def test_a_transaction_holds_no_more_in_memory_than_its_settings_say(tmp_path: Path) -> None:
    settings = Settings(staged_bytes_max=100_000)
    folder = tmp_path / "store"

    def stored() -> int:
        return sum(each.stat().st_size for each in (folder / "blobs").rglob("*") if each.is_file())

    with ab.connect(folder, create=True, settings=settings) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        with store.transaction() as open_transaction:
            writer = open_transaction.writer("s/a")
            for number in range(20):
                writer.write_batch(pa.table({"payload": [b"%2d" % number + b"x" * 40_000], "key": ["k"]}))
                assert (number + 1) * 40_002 - stored() <= 100_000
            assert stored() > 0
        with store.reader("s/a") as reader:
            assert [bytes(event.body)[:2] for event in reader] == [b"%2d" % number for number in range(20)]
