"""The pools in front of a remote store: one fetch for many readers, and history never in the way of the tail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.blobs.address import parse
from anabranch.blobs.cache import PooledBlobs
from anabranch.blobs.keys import commit_key, history_key
from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.objects import ObjectBlobs
from anabranch.blobs.port import Blobs
from anabranch.errors import BlobMissing, CorruptBlob, StoreUnavailable
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.runtime.tasks import ThreadTasks
from anabranch.testing.contracts import BlobContract
from tests.pressed import Pressed
from tests.s3_server import fresh_url
from tests.waiting import PATIENCE_S, until_ended

NOW = 1_700_000_000_000_000
TOKEN = "0" * 24
FRESH = commit_key(Micros(NOW - 1_000_000), TOKEN)
OLD = commit_key(Micros(NOW - 2 * limits.FRESH_COMMIT_US), TOKEN)
FILE = history_key(Micros(NOW - 1_000_000), TOKEN)


class TestPooledS3(BlobContract):
    def make(self) -> Blobs:
        self.url = fresh_url()
        return self.again()

    def again(self) -> Blobs:
        return PooledBlobs(ObjectBlobs(parse(self.url), Runtime()), Runtime())


class Counted(MemoryBlobs):
    """Notes what is fetched; `before` may wait or raise."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[tuple[str, int, int | None]] = []
        self.before: Callable[[str], None] = lambda key: None

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        self.fetched.append((key, offset, length))
        self.before(key)
        return super().get(key, offset, length)


class Hand(ThreadTasks):
    """A clock that tests and sleepers move."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> Micros:
        return Micros(NOW)

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def inner() -> Counted:
    return Counted()


@pytest.fixture
def hand() -> Hand:
    return Hand()


def pooled(inner: Counted, hand: Hand, **settings: int) -> PooledBlobs:
    return PooledBlobs(inner, Runtime(clock=hand, tasks=hand, settings=Settings(**settings)))  # type: ignore[arg-type]


def held_back(inner: Counted, keys: Sequence[str]) -> Iterator[threading.Event]:
    gate = threading.Event()
    inner.before = lambda key: (gate.wait(PATIENCE_S), None)[1] if key in keys else None
    yield gate
    gate.set()


def test_what_this_process_put_is_not_fetched(inner: Counted, hand: Hand) -> None:
    blobs = pooled(inner, hand)
    message = pa.py_buffer(b"message")
    blobs.put(FRESH, [b"header", message, b"", b"padding"])
    got = blobs.get(FRESH, 6, 7)
    assert got.to_pybytes() == b"message"
    assert got.address == message.address  # without a copy
    assert blobs.get(FRESH, 4, 12).to_pybytes() == b"ermessagepad"
    assert blobs.get(FRESH).to_pybytes() == b"headermessagepadding"
    with pytest.raises(CorruptBlob):
        blobs.get(FRESH, 15, 6)
    assert inner.fetched == []


@pytest.mark.parametrize("key", [FRESH, OLD, FILE])
def test_a_range_is_fetched_once_and_a_whole_serves_its_ranges(inner: Counted, hand: Hand, key: str) -> None:
    inner.put(key, [b"0123456789"])
    blobs = pooled(inner, hand)
    for _ in range(3):
        assert blobs.get(key, 2, 4).to_pybytes() == b"2345"
    assert blobs.get(key).to_pybytes() == b"0123456789"
    assert blobs.get(key, 5, 5).to_pybytes() == b"56789"
    assert inner.fetched == [(key, 2, 4), (key, 0, None)]


@pytest.mark.parametrize("key", [FRESH, OLD])
def test_many_readers_of_one_range_fetch_it_once(inner: Counted, hand: Hand, key: str) -> None:
    inner.put(key, [b"0123456789"])
    blobs = pooled(inner, hand)
    found: list[bytes] = []
    for gate in held_back(inner, [key]):
        readers = [threading.Thread(target=lambda: found.append(blobs.get(key, 1, 3).to_pybytes())) for _ in range(16)]
        for reader in readers:
            reader.start()
        gate.set()
        until_ended(*readers)
    assert found == [b"123"] * 16
    assert len(inner.fetched) == 1


def test_a_failed_fetch_is_tried_again_by_who_comes_later(inner: Counted, hand: Hand) -> None:
    blobs = pooled(inner, hand)
    begun, go_on = threading.Event(), threading.Event()

    def fail(key: str) -> None:
        begun.set()
        go_on.wait(PATIENCE_S)
        raise StoreUnavailable("not now")

    inner.put(OLD, [b"0123"])
    inner.before = fail
    errors: list[Exception] = []

    def read() -> None:
        try:
            blobs.get(OLD, 0, 4)
        except StoreUnavailable as exc:
            errors.append(exc)

    leader = threading.Thread(target=read)
    leader.start()
    assert begun.wait(PATIENCE_S)
    go_on.set()
    until_ended(leader)
    assert len(errors) == 1
    inner.before = lambda key: None
    assert blobs.get(OLD, 0, 4).to_pybytes() == b"0123"
    with pytest.raises(BlobMissing):
        blobs.get(FILE)


def test_an_interrupted_fetch_leaves_no_reader_waiting(inner: Counted, hand: Hand) -> None:
    inner.put(OLD, [b"0123"])
    blobs = pooled(inner, hand)

    def interrupt(key: str) -> None:
        raise KeyboardInterrupt

    inner.before = interrupt
    for _ in range(limits.HISTORY_FETCHES_MAX + 1):  # its place is given back too
        with pytest.raises(KeyboardInterrupt):
            blobs.get(OLD, 0, 4)
    inner.before = lambda key: None
    assert blobs.get(OLD, 0, 4).to_pybytes() == b"0123"


@pytest.mark.parametrize("where", ["pool", "gate"])
def test_ctrl_c_where_a_fetch_is_about_to_begin_leaves_no_reader_waiting(
    inner: Counted, hand: Hand, where: str
) -> None:
    inner.put(OLD, [b"0123"])
    blobs = pooled(inner, hand)
    history: Any = blobs._history
    for _ in range(limits.HISTORY_FETCHES_MAX + 1):
        (history if where == "pool" else history._limiter)._changed = Pressed()
        interrupted = [threading.Thread(target=pressed_on, args=(blobs,), daemon=True)]
        interrupted[0].start()
        until_ended(*interrupted)
    history._changed = history._limiter._changed = hand.condition()
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(blobs.get(OLD, 0, 4).to_pybytes()), daemon=True)
    reader.start()
    until_ended(reader)
    assert found == [b"0123"]


def pressed_on(blobs: PooledBlobs) -> None:
    with pytest.raises(KeyboardInterrupt):
        blobs.get(OLD, 0, 4)


def test_a_catch_up_neither_evicts_fresh_commits_nor_holds_their_readers_up(inner: Counted, hand: Hand) -> None:
    old = [commit_key(Micros(n), TOKEN) for n in range(2 * limits.HISTORY_FETCHES_MAX)]
    for key in (*old, FRESH):
        inner.put(key, [b"x" * 1000])
    blobs = pooled(inner, hand, tail_cache_bytes_max=2_000, history_cache_bytes_max=3_000)
    blobs.get(FRESH, 0, 1000)
    for key in old:
        blobs.get(key, 0, 1000)
    blobs.get(FRESH, 0, 1000)
    assert inner.fetched.count((FRESH, 0, 1000)) == 1
    blobs.get(old[-1], 0, 1000)
    assert inner.fetched.count((old[-1], 0, 1000)) == 1
    blobs.get(old[0], 0, 1000)
    assert inner.fetched.count((old[0], 0, 1000)) == 2  # its room was needed

    # All places for history are taken, and the tail is read all the same.
    for gate in held_back(inner, old):
        readers = [threading.Thread(target=blobs.get, args=(key, 0, 10)) for key in old]
        for reader in readers:
            reader.start()
        assert blobs.get(FRESH, 1, 7).to_pybytes() == b"x" * 7
        waiting = [fetch for fetch in inner.fetched if fetch[2] == 10]
        assert len(waiting) <= limits.HISTORY_FETCHES_MAX
        gate.set()
        until_ended(*readers)
    assert len([fetch for fetch in inner.fetched if fetch[2] == 10]) == len(old)


def test_history_keeps_to_its_rate_and_the_tail_has_none(inner: Counted, hand: Hand) -> None:
    blobs = pooled(inner, hand, history_bytes_per_s_max=1_000)
    for n in range(10):
        inner.put(commit_key(Micros(n), TOKEN), [b"x" * 500])
        blobs.get(commit_key(Micros(n), TOKEN), 0, 500)
    assert sum(hand.slept) == pytest.approx(9 * 0.5)
    inner.put(FRESH, [b"x" * 100_000])
    blobs.get(FRESH)
    blobs.get(FRESH, 0, 5)
    assert sum(hand.slept) == pytest.approx(9 * 0.5)


def test_a_deleted_blob_is_forgotten(inner: Counted, hand: Hand) -> None:
    blobs = pooled(inner, hand)
    blobs.put(FRESH, [b"bytes"])
    inner.put(OLD, [b"bytes"])
    blobs.get(OLD, 1, 2)
    for key in (FRESH, OLD):
        blobs.delete(key)
        with pytest.raises(BlobMissing):
            blobs.get(key, 1, 2)
