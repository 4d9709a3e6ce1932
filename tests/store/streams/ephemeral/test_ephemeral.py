"""Ephemeral streams: they live while somebody holds them, and go with the last who does, however that one ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.state.ephemeral import EPHEMERAL
from anabranch.errors import (
    Closed,
    InvalidArgument,
    RequestMismatch,
    ScopeNotFound,
    StoreUnavailable,
    StreamExists,
    StreamNotFound,
)
from anabranch.model.ids import Micros
from anabranch.runtime.clock import SystemClock
from anabranch.store import Store
from anabranch.streams.ephemeral.hold import HolderState
from tests.clocks import runtime_by
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import Rig, bodies_of, sound
from tests.waiting import until

LATER_S = (limits.EPHEMERAL_LEASE_US + limits.CLOCKS_DIFFER_US) / 1e6 + 1

Open = Callable[..., Store]


class Ahead(SystemClock):
    """A calendar that is some seconds ahead of this machine's."""

    def __init__(self, seconds: float) -> None:
        self._ahead_us = round(seconds * 1e6)

    def now(self) -> Micros:
        return Micros(super().now() + self._ahead_us)


@pytest.fixture(params=["sqlite+folder", "postgres+folder"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the one store once more, as another process does, by a clock that is so many seconds ahead."""
    url = fresh_url() if request.param.startswith("postgres") else str(tmp_path / "river")
    opened: list[Store] = []

    def connect(ahead_s: float = 0.0) -> Store:
        store = ab.connect(url, blobs=tmp_path / "blobs", runtime=runtime_by(Ahead(ahead_s)), create=True)
        opened.append(store)
        store.scopes.create("s", exist_ok=True)
        return store

    yield connect
    for store in opened:
        store.close()
    if request.param.startswith("postgres"):
        drop(url)


@pytest.fixture
def store() -> Iterator[Store]:
    with ab.connect("memory://") as opened:
        opened.scopes.create("s")
        yield opened
        assert sound(opened)


def killed(store: Store, name: str) -> None:
    """Have a holder of the stream end as a killed one does: nothing of it is prolonged or left."""
    store.ephemeral.hold(name) if store.streams.exists(name) else store.ephemeral.create(name)
    holdings = store.ephemeral._holds
    with holdings._lock:
        holdings._held.clear()


# a life


def test_an_ephemeral_stream_exists_while_it_is_held(store: Store) -> None:
    with store.ephemeral.create("s/tmp", scaling=2, tags={"of": "a test"}) as stream:
        with store.writer(stream.name) as writer:
            writer.write(b"1", key="a").result()
        assert bodies_of(store, "s/tmp") == [b"1"]
        info = store.streams.get("s/tmp")
        assert (info.id, dict(info.tags), len(store.streams.view("s/tmp").current)) == (stream.id, {"of": "a test"}, 2)
        assert store.ephemeral.is_ephemeral("s/tmp")
        assert [holder.process for holder in store.ephemeral.holders("s/tmp")] == [store.runtime.process]
    assert not store.streams.exists("s/tmp")
    assert stream.state is HolderState.GONE
    store.streams.create("s/tmp")  # the name is free, and what has it now is lasting
    assert not store.ephemeral.is_ephemeral("s/tmp")
    assert store.ephemeral.holders("s/tmp") == ()


def test_an_error_in_the_block_deletes_the_stream(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.ephemeral.create("s/tmp"):
        print(1 / 0)
    assert not store.streams.exists("s/tmp")


def test_columns_are_those_of_create(store: Store) -> None:
    schema = pa.schema([("device", pa.string()), ("n", pa.int64())])
    with store.ephemeral.create("s/tmp", schema=schema, key="device"), store.writer("s/tmp") as writer:
        writer.write_batch(pa.table({"device": ["a"], "n": [7]})).result()
        assert bodies_of(store, "s/tmp") == [{"device": "a", "n": 7}]
    with pytest.raises(InvalidArgument, match="key="):
        store.ephemeral.create("s/tmp", key="device")


def test_unnamed_ephemeral_streams_are_internal_and_distinct(store: Store) -> None:
    with store.ephemeral.create() as one, store.ephemeral.create() as other:
        assert one.name != other.name
        assert one.name.internal
        assert list(store.streams.list()) == []
        assert len(list(store.streams.list(internal=True))) == 2
    assert list(store.streams.list(internal=True)) == []


def test_a_taken_name_or_a_missing_scope_is_refused(store: Store) -> None:
    with store.ephemeral.create("s/tmp"):
        with pytest.raises(StreamExists):
            store.ephemeral.create("s/tmp")
        with pytest.raises(StreamExists):
            store.streams.create("s/tmp")
    with pytest.raises(ScopeNotFound):
        store.ephemeral.create("nowhere/tmp")
    with pytest.raises(StreamNotFound):
        store.ephemeral.hold("s/tmp")
    store.streams.create("s/lasting")
    with pytest.raises(InvalidArgument, match="is permanent"):
        store.ephemeral.hold("s/lasting")


def test_the_bytes_are_collected_with_the_stream(tmp_path: Path) -> None:
    with Rig(tmp_path, inline_bytes_max=0, horizon_us=0) as rig:
        with rig.store.ephemeral.create("s/tmp"), rig.store.writer("s/tmp") as writer:
            writer.write(b"x" * 100).result()
        for _ in range(3):
            rig.store.collect(horizon_us=0)
        assert list(rig.blobs.list()) == []


# several holders


def test_the_last_of_several_processes_deletes_the_stream(open_store: Open) -> None:
    one, other = open_store(), open_store()
    first = one.ephemeral.create("s/tmp")
    with other.ephemeral.hold("s/tmp") as second:
        assert (second.id, second.name) == (first.id, first.name)
        with one.writer("s/tmp") as writer:
            writer.write(b"1").result()
        first.leave()
        first.leave()
        assert bodies_of(other, "s/tmp") == [b"1"]
        assert len(one.ephemeral.holders("s/tmp")) == 1
    assert not one.streams.exists("s/tmp")
    assert sound(one)


def test_one_process_may_hold_a_stream_twice(store: Store) -> None:
    with store.ephemeral.create("s/tmp"):
        with store.ephemeral.hold("s/tmp"):
            pass
        assert store.streams.exists("s/tmp")
    assert not store.streams.exists("s/tmp")


def test_closing_the_store_releases_its_holds(open_store: Open) -> None:
    one, other = open_store(), open_store()
    held = one.ephemeral.create("s/one")
    one.ephemeral.create("s/both")
    with other.ephemeral.hold("s/both"):
        one.close()
        assert not other.streams.exists("s/one")
        assert other.streams.exists("s/both")
        held.leave()
    with pytest.raises(Closed):
        one.ephemeral.create("s/late")


# holders that were killed


def test_the_sweeper_removes_streams_of_killed_holders(open_store: Open) -> None:
    dead, early, late = open_store(), open_store(), open_store(LATER_S)
    killed(dead, "s/tmp")
    dead.streams.create("s/lasting")
    assert early.collect().streams == 0
    assert early.streams.exists("s/tmp")
    assert late.collect().streams == 1
    assert [str(info.name) for info in early.streams.list(internal=True)] == ["s/lasting"]
    assert sound(early)


def test_leaving_beside_a_killed_holder_leaves_the_stream_to_the_sweeper(open_store: Open) -> None:
    dead, living, late = open_store(), open_store(), open_store(LATER_S)
    killed(dead, "s/tmp")
    with living.ephemeral.hold("s/tmp"):
        pass
    assert living.streams.exists("s/tmp")  # for all it knows the other one is at work
    assert late.ephemeral.sweep() == 1
    assert not living.streams.exists("s/tmp")


def test_leaving_after_a_killed_holders_lease_expired_deletes_the_stream(open_store: Open) -> None:
    dead, late = open_store(), open_store(LATER_S)
    killed(dead, "s/tmp")
    with late.ephemeral.hold("s/tmp"):
        assert late.ephemeral.sweep() == 0  # it holds the stream itself
    assert not late.streams.exists("s/tmp")


def test_upkeep_sweeps(tmp_path: Path) -> None:
    with ab.connect(tmp_path, create=True) as dead:
        dead.scopes.create("s")
        killed(dead, "s/tmp")
        runtime = runtime_by(Ahead(LATER_S), settings=ab.Settings(maintenance_s=0.01))
        with ab.connect(tmp_path, runtime=runtime, create=True) as keeper:
            until(lambda: keeper._maintenance.rounds)
            assert keeper._maintenance.failure is None
        assert not dead.streams.exists("s/tmp")


def test_a_suspended_holder_is_not_swept_by_its_own_process(tmp_path: Path) -> None:
    clock = Ahead(0)
    with ab.connect(tmp_path, runtime=runtime_by(clock), create=True) as store:
        store.scopes.create("s")
        with store.ephemeral.create("s/tmp"):
            clock._ahead_us += 3600 * 1_000_000  # the machine slept for an hour
            assert store.collect().streams == 0
            assert store.streams.exists("s/tmp")


def test_a_clock_may_be_wrong_by_what_clocks_may_differ(open_store: Open) -> None:
    behind, ahead = open_store(), open_store((limits.EPHEMERAL_LEASE_US + limits.CLOCKS_DIFFER_US) / 1e6 - 10)
    killed(behind, "s/tmp")
    assert ahead.ephemeral.sweep() == 0
    assert behind.streams.exists("s/tmp")


# what becomes of it


def test_a_kept_stream_is_permanent(open_store: Open) -> None:
    one, other = open_store(), open_store(LATER_S)
    with one.ephemeral.create("s/tmp") as stream:
        assert other.ephemeral.keep("s/tmp").id == stream.id
        assert other.ephemeral.keep("s/tmp", request="again").id == stream.id
    assert other.ephemeral.sweep() == 0
    assert not one.ephemeral.is_ephemeral("s/tmp")
    with pytest.raises(InvalidArgument, match="is permanent"):
        one.ephemeral.hold("s/tmp")


def test_copies_and_stitches_of_it_are_permanent(store: Store) -> None:
    with store.ephemeral.create("s/tmp"), store.writer("s/tmp") as writer:
        writer.write(b"1").result()
        store.streams.copy("s/tmp", "s/copy")
        store.streams.stitch(["s/tmp", "s/copy"], into="s/both")
        store.streams.stitch(["s/tmp"], into="s/tmp", keep_sources=False)
    assert [str(info.name) for info in store.streams.list()] == ["s/both", "s/copy", "s/tmp"]
    assert not any(store.ephemeral.is_ephemeral(info.name) for info in store.streams.list())
    assert (bodies_of(store, "s/copy"), bodies_of(store, "s/both")) == ([b"1"], [b"1", b"1"])


def test_a_renamed_ephemeral_stream_is_deleted(store: Store) -> None:
    with store.ephemeral.create("s/tmp"):
        store.streams.rename("s/tmp", "s/other")
        assert store.ephemeral.is_ephemeral("s/other")
    assert list(store.streams.list()) == []


def test_a_held_stream_may_be_deleted(store: Store) -> None:
    with store.ephemeral.create("s/tmp"):
        store.streams.delete("s/tmp")
        store.streams.create("s/tmp")
    assert store.streams.exists("s/tmp")
    with store.catalog.reading() as reading:
        assert reading.states(EPHEMERAL) == []


# requests and failures


def test_a_repeated_hold_request_returns_the_same_hold(open_store: Open) -> None:
    one, other = open_store(), open_store()
    first = one.ephemeral.create("s/tmp", tags={"a": "b"}, request="r")
    assert one.ephemeral.create("s/tmp", tags={"a": "b"}, request="r") is first
    joined = other.ephemeral.hold("s/tmp", request="h")
    assert other.ephemeral.hold("s/tmp", request="h") is joined
    assert len(one.ephemeral.holders("s/tmp")) == 2
    with pytest.raises(RequestMismatch):
        one.ephemeral.create("s/tmp", request="r")
    joined.leave()
    first.leave()
    assert not one.streams.exists("s/tmp")
    nameless = one.ephemeral.create(request="n")
    assert one.ephemeral.create(request="n") is nameless


def test_a_block_ends_cleanly_if_the_catalog_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(SqliteCatalog):
        def writing(self, on: object = None) -> object:  # type: ignore[override]
            raise StoreUnavailable("away")

    with ab.connect(tmp_path, create=True) as store:
        store.scopes.create("s")
        with monkeypatch.context() as patched, store.ephemeral.create("s/tmp") as stream:
            patched.setattr(SqliteCatalog, "writing", Away.writing)
        assert stream.left
        with monkeypatch.context() as patched:
            held = store.ephemeral.create("s/other")
            patched.setattr(SqliteCatalog, "writing", Away.writing)
            with pytest.raises(StoreUnavailable):
                held.leave()
        assert store.streams.exists("s/tmp")
    with ab.connect(tmp_path, create=True) as store:  # closing the other one left what it could not leave before
        assert list(store.streams.list()) == []
