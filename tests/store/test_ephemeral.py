"""Ephemeral streams: they live while somebody holds them, and go with the last who does, however that one ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.sqlite.adapter import SqliteCatalog
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
from anabranch.runtime.ports import Runtime
from anabranch.store import Store
from anabranch.streams.hold import Standing
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
        store = ab.connect(url, blobs=tmp_path / "blobs", runtime=Runtime(clock=Ahead(ahead_s)))
        opened.append(store)
        store.streams.create_scope("s", exist_ok=True)
        return store

    yield connect
    for store in opened:
        store.close()
    if request.param.startswith("postgres"):
        drop(url)


@pytest.fixture
def store() -> Iterator[Store]:
    with ab.connect("memory://") as opened:
        opened.streams.create_scope("s")
        yield opened
        assert sound(opened)


def killed(store: Store, name: str) -> None:
    """Have a holder of the stream end as a killed one does: nothing of it is prolonged or left."""
    store.streams.hold(name) if store.streams.exists(name) else store.streams.ephemeral(name)
    holdings = store.streams._holdings
    with holdings._changed:
        holdings._held.clear()


# a life


def test_a_stream_is_there_while_it_is_held_and_gone_afterwards(store: Store) -> None:
    with store.streams.ephemeral("s/tmp", scaling=2, tags={"of": "a test"}) as stream:
        with store.writer(stream.name) as writer:
            writer.write(b"1", key="a").result()
        assert bodies_of(store, "s/tmp") == [b"1"]
        info = store.streams.get("s/tmp")
        assert (info.id, dict(info.tags), len(store.streams.view("s/tmp").current)) == (stream.id, {"of": "a test"}, 2)
        assert store.streams.is_ephemeral("s/tmp")
        assert [holder.process for holder in store.streams.holders("s/tmp")] == [store.runtime.process]
    assert not store.streams.exists("s/tmp")
    assert stream.standing is Standing.GONE
    store.streams.create("s/tmp")  # the name is free, and what has it now is lasting
    assert not store.streams.is_ephemeral("s/tmp")
    assert store.streams.holders("s/tmp") == ()


def test_an_error_within_the_block_takes_the_stream_along_too(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.streams.ephemeral("s/tmp"):
        print(1 / 0)
    assert not store.streams.exists("s/tmp")


def test_columns_are_those_of_create(store: Store) -> None:
    schema = pa.schema([("device", pa.string()), ("n", pa.int64())])
    with store.streams.ephemeral("s/tmp", schema=schema, key="device"), store.writer("s/tmp") as writer:
        writer.write_batch(pa.table({"device": ["a"], "n": [7]})).result()
        assert bodies_of(store, "s/tmp") == [{"device": "a", "n": 7}]
    with pytest.raises(InvalidArgument, match="key="):
        store.streams.ephemeral("s/tmp", key="device")


def test_without_a_name_streams_are_internal_and_do_not_meet(store: Store) -> None:
    with store.streams.ephemeral() as one, store.streams.ephemeral() as other:
        assert one.name != other.name
        assert one.name.internal
        assert list(store.streams.list()) == []
        assert len(list(store.streams.list(internal=True))) == 2
    assert list(store.streams.list(internal=True)) == []


def test_a_name_that_is_taken_or_a_scope_that_is_missing_is_refused(store: Store) -> None:
    with store.streams.ephemeral("s/tmp"):
        with pytest.raises(StreamExists):
            store.streams.ephemeral("s/tmp")
        with pytest.raises(StreamExists):
            store.streams.create("s/tmp")
    with pytest.raises(ScopeNotFound):
        store.streams.ephemeral("nowhere/tmp")
    with pytest.raises(StreamNotFound):
        store.streams.hold("s/tmp")
    store.streams.create("s/lasting")
    with pytest.raises(InvalidArgument, match="lasting"):
        store.streams.hold("s/lasting")


def test_the_bytes_go_with_the_stream(tmp_path: Path) -> None:
    with Rig(tmp_path, inline_bytes_max=0, horizon_us=0) as rig:
        with rig.store.streams.ephemeral("s/tmp"), rig.store.writer("s/tmp") as writer:
            writer.write(b"x" * 100).result()
        for _ in range(3):
            rig.store.collect(horizon_us=0)
        assert list(rig.blobs.list()) == []


# several holders


def test_the_last_of_several_processes_takes_the_stream_along(open_store: Open) -> None:
    one, other = open_store(), open_store()
    first = one.streams.ephemeral("s/tmp")
    with other.streams.hold("s/tmp") as second:
        assert (second.id, second.name) == (first.id, first.name)
        with one.writer("s/tmp") as writer:
            writer.write(b"1").result()
        first.leave()
        first.leave()
        assert bodies_of(other, "s/tmp") == [b"1"]
        assert len(one.streams.holders("s/tmp")) == 1
    assert not one.streams.exists("s/tmp")
    assert sound(one)


def test_one_process_may_hold_a_stream_twice(store: Store) -> None:
    with store.streams.ephemeral("s/tmp"):
        with store.streams.hold("s/tmp"):
            pass
        assert store.streams.exists("s/tmp")
    assert not store.streams.exists("s/tmp")


def test_closing_the_store_leaves_what_it_holds(open_store: Open) -> None:
    one, other = open_store(), open_store()
    held = one.streams.ephemeral("s/one")
    one.streams.ephemeral("s/both")
    with other.streams.hold("s/both"):
        one.close()
        assert not other.streams.exists("s/one")
        assert other.streams.exists("s/both")
        held.leave()
    with pytest.raises(Closed):
        one.streams.ephemeral("s/late")


# holders that were killed


def test_the_sweeper_takes_away_what_the_killed_held(open_store: Open) -> None:
    dead, early, late = open_store(), open_store(), open_store(LATER_S)
    killed(dead, "s/tmp")
    dead.streams.create("s/lasting")
    assert early.collect().streams == 0
    assert early.streams.exists("s/tmp")
    assert late.collect().streams == 1
    assert [str(info.name) for info in early.streams.list(internal=True)] == ["s/lasting"]
    assert sound(early)


def test_who_leaves_beside_a_killed_holder_leaves_the_stream_to_the_sweeper(open_store: Open) -> None:
    dead, living, late = open_store(), open_store(), open_store(LATER_S)
    killed(dead, "s/tmp")
    with living.streams.hold("s/tmp"):
        pass
    assert living.streams.exists("s/tmp")  # for all it knows the other one is at work
    assert late.streams.sweep() == 1
    assert not living.streams.exists("s/tmp")


def test_who_leaves_last_after_the_killed_ones_lease_ran_out_takes_the_stream_along(open_store: Open) -> None:
    dead, late = open_store(), open_store(LATER_S)
    killed(dead, "s/tmp")
    with late.streams.hold("s/tmp"):
        assert late.streams.sweep() == 0  # it holds the stream itself
    assert not late.streams.exists("s/tmp")


def test_upkeep_sweeps(tmp_path: Path) -> None:
    with ab.connect(tmp_path) as dead:
        dead.streams.create_scope("s")
        killed(dead, "s/tmp")
        runtime = Runtime(clock=Ahead(LATER_S), settings=ab.Settings(maintenance_s=0.01))
        with ab.connect(tmp_path, runtime=runtime) as keeper:
            until(lambda: keeper._maintenance.rounds)
            assert keeper._maintenance.failure is None
        assert not dead.streams.exists("s/tmp")


def test_a_holder_that_stands_still_keeps_what_it_holds_from_its_own_sweeper(tmp_path: Path) -> None:
    clock = Ahead(0)
    with ab.connect(tmp_path, runtime=Runtime(clock=clock)) as store:
        store.streams.create_scope("s")
        with store.streams.ephemeral("s/tmp"):
            clock._ahead_us += 3600 * 1_000_000  # the machine slept for an hour
            assert store.collect().streams == 0
            assert store.streams.exists("s/tmp")


def test_a_clock_may_be_wrong_by_what_clocks_may_differ(open_store: Open) -> None:
    behind, ahead = open_store(), open_store((limits.EPHEMERAL_LEASE_US + limits.CLOCKS_DIFFER_US) / 1e6 - 10)
    killed(behind, "s/tmp")
    assert ahead.streams.sweep() == 0
    assert behind.streams.exists("s/tmp")


# what becomes of it


def test_a_stream_that_is_kept_lasts(open_store: Open) -> None:
    one, other = open_store(), open_store(LATER_S)
    with one.streams.ephemeral("s/tmp") as stream:
        assert other.streams.keep("s/tmp").id == stream.id
        assert other.streams.keep("s/tmp", request="again").id == stream.id
    assert other.streams.sweep() == 0
    assert not one.streams.is_ephemeral("s/tmp")
    with pytest.raises(InvalidArgument, match="lasting"):
        one.streams.hold("s/tmp")


def test_copies_and_stitches_of_it_are_lasting(store: Store) -> None:
    with store.streams.ephemeral("s/tmp"), store.writer("s/tmp") as writer:
        writer.write(b"1").result()
        store.streams.copy("s/tmp", "s/copy")
        store.streams.stitch(["s/tmp", "s/copy"], into="s/both")
        store.streams.stitch(["s/tmp"], into="s/tmp", keep_sources=False)
    assert [str(info.name) for info in store.streams.list()] == ["s/both", "s/copy", "s/tmp"]
    assert not any(store.streams.is_ephemeral(info.name) for info in store.streams.list())
    assert (bodies_of(store, "s/copy"), bodies_of(store, "s/both")) == ([b"1"], [b"1", b"1"])


def test_it_goes_under_whatever_name_it_has_by_then(store: Store) -> None:
    with store.streams.ephemeral("s/tmp"):
        store.streams.rename("s/tmp", "s/other")
        assert store.streams.is_ephemeral("s/other")
    assert list(store.streams.list()) == []


def test_it_may_be_deleted_while_it_is_held(store: Store) -> None:
    with store.streams.ephemeral("s/tmp"):
        store.streams.delete("s/tmp")
        store.streams.create("s/tmp")
    assert store.streams.exists("s/tmp")
    with store.catalog.reading() as reading:
        assert reading.pieces("ephemeral") == []


# requests and failures


def test_a_request_that_is_asked_again_holds_what_it_held(open_store: Open) -> None:
    one, other = open_store(), open_store()
    first = one.streams.ephemeral("s/tmp", tags={"a": "b"}, request="r")
    assert one.streams.ephemeral("s/tmp", tags={"a": "b"}, request="r") is first
    joined = other.streams.hold("s/tmp", request="h")
    assert other.streams.hold("s/tmp", request="h") is joined
    assert len(one.streams.holders("s/tmp")) == 2
    with pytest.raises(RequestMismatch):
        one.streams.ephemeral("s/tmp", request="r")
    joined.leave()
    first.leave()
    assert not one.streams.exists("s/tmp")
    nameless = one.streams.ephemeral(request="n")
    assert one.streams.ephemeral(request="n") is nameless


def test_a_block_ends_though_the_catalog_can_not_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(SqliteCatalog):
        def writing(self, on: object = None) -> object:  # type: ignore[override]
            raise StoreUnavailable("away")

    with ab.connect(tmp_path) as store:
        store.streams.create_scope("s")
        with monkeypatch.context() as patched, store.streams.ephemeral("s/tmp") as stream:
            patched.setattr(SqliteCatalog, "writing", Away.writing)
        assert stream.left
        with monkeypatch.context() as patched:
            held = store.streams.ephemeral("s/other")
            patched.setattr(SqliteCatalog, "writing", Away.writing)
            with pytest.raises(StoreUnavailable):
                held.leave()
        assert store.streams.exists("s/tmp")
    with ab.connect(tmp_path) as store:  # closing the other one left what it could not leave before
        assert list(store.streams.list()) == []
