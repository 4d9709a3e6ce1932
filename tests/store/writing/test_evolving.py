"""Streams that gain columns under open writers: these learn of them when they are first written."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import SchemaMismatch
from anabranch.model.schema import StreamSchema
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.writing.writer import Writer
from tests.store.helpers import ANYWHERE, SCHEMA, bodies_of, sound, store_at
from tests.waiting import until_ended

WIDER = SCHEMA.append(pa.field("unit", pa.string()))


@pytest.fixture(params=ANYWHERE)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as store:
        store.streams.create("s/a", schema=SCHEMA, key="device", time="at", scaling=2)
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at("memory", tmp_path) as store:
        store.streams.create("s/a", schema=SCHEMA, key="device", time="at", scaling=2)
        yield store


def event(n: int, **more: Any) -> dict[str, Any]:
    return {"device": f"d{n % 3}", "at": n, "n": n} | more


def units(store: Store) -> dict[int, str | None]:
    """The values of the column that was added later, by event number."""
    return {body["n"]: body["unit"] for body in bodies_of(store, "s/a")}


def test_an_open_writer_takes_columns_that_came_later(anywhere: Store) -> None:
    with anywhere.writer("s/a") as writer:
        writer.write(event(0)).result()
        writer.write(event(1))  # still gathered when the writer learns
        anywhere.streams.evolve("s/a", WIDER)
        writer.write(event(2))  # fits what the writer knows
        writer.write(event(3, unit="C"))
        writer.write_batch(pa.Table.from_pylist([event(4, unit="F"), event(5)], WIDER))
        writer.write(event(6))
    assert units(anywhere) == {0: None, 1: None, 2: None, 3: "C", 4: "F", 5: None, 6: None}
    anywhere.compact(force=True)
    assert units(anywhere)[3] == "C"
    assert sound(anywhere)


def test_a_batch_that_can_be_read_once_is_taken_too(store: Store) -> None:
    with store.writer("s/a") as writer:
        store.streams.evolve("s/a", WIDER)
        rows = pa.Table.from_pylist([event(0, unit="C")], WIDER)
        writer.write_batch(pa.RecordBatchReader.from_batches(WIDER, rows.to_batches()))
    assert units(store) == {0: "C"}


def test_a_batch_may_be_atomic_and_an_event_conditional(store: Store) -> None:
    with store.writer("s/a") as writer:
        writer.write(event(0))
        store.streams.evolve("s/a", WIDER)
        writer.write_batch(pa.Table.from_pylist([event(n, unit="C") for n in range(1, 9)], WIDER), atomic=True)
        writer.flush()
        store.streams.scale("s/a", 1)
        writer.write(event(9, unit="F"), expected=0).result()
    assert units(store) == {0: None, **dict.fromkeys(range(1, 9), "C"), 9: "F"}


def test_what_no_column_takes_is_refused_as_ever(anywhere: Store) -> None:
    with anywhere.writer("s/a") as writer:
        for _ in range(2):
            with pytest.raises(SchemaMismatch, match="unknown column 'unit'"):
                writer.write(event(0, unit="C"))
        anywhere.streams.evolve("s/a", WIDER)
        with pytest.raises(SchemaMismatch, match="unknown column 'color'; the stream has device, at, n, unit"):
            writer.write(event(0, color="red"))
        writer.write(event(1, unit="C"))
    assert units(anywhere) == {1: "C"}


def test_events_of_both_kinds_keep_their_order_through_a_scale(store: Store) -> None:
    with store.writer("s/a") as writer:
        for n in range(30):
            writer.write(event(n))
        store.streams.evolve("s/a", WIDER)
        store.streams.scale("s/a", 3)
        for n in range(30, 60):
            writer.write(event(n, unit="C") if n % 4 else event(n))
    for device in range(3):
        numbers = [body["n"] for body in bodies_of(store, "s/a") if body["device"] == f"d{device}"]
        assert numbers == list(range(device, 60, 3))


def test_a_column_that_was_widened_takes_what_it_takes_now(store: Store) -> None:
    store.streams.create("s/wide", schema=SCHEMA.set(2, pa.field("n", pa.int64())), key="device", time="at")
    wide = pa.Table.from_pylist([event(1 << 40, at=1)])
    with store.writer("s/a") as writer:
        writer.write(event(1))
        with pytest.raises(SchemaMismatch):
            writer.write_batch(wide)
        store.streams.append("s/wide", "s/a")
        writer.write_batch(wide)
        writer.write(event(1 << 41, at=1))
    assert [body["n"] for body in bodies_of(store, "s/a")] == [1, 1 << 40, 1 << 41]


def test_a_large_event_has_columns_that_came_later(tmp_path: Path) -> None:
    with ab.connect("memory://", settings=Settings(event_bytes_max=1 << 20)) as store:
        store.scopes.create("s")
        store.streams.create("s/a", schema=SCHEMA, key="device", time="at")
        with store.writer("s/a") as writer:
            writer.write(event(0))
            store.streams.evolve("s/a", WIDER)
            writer.write(event(1, unit="x" * (2 << 20)))
        assert {n: len(unit or "") for n, unit in units(store).items()} == {0: 0, 1: 2 << 20}


def test_threads_that_share_a_writer_learn_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    adopt = Writer._adopt
    failures: list[BaseException] = []
    threads: list[threading.Thread] = []

    def write(n: int) -> None:
        try:
            writer.write(event(n, unit="C"))
        except BaseException as exc:
            failures.append(exc)

    class Watched(Writer):
        """Another thread begins to write at each step of it."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            threads.append(threading.Thread(target=write, args=(len(threads) + 1,)))
            threads[-1].start()
            time.sleep(0.02)

    def watched(writer: Writer, schema: StreamSchema) -> None:
        writer.__class__ = Watched
        adopt(writer, schema)
        writer.__class__ = Writer

    with store.writer("s/a") as writer:
        store.streams.evolve("s/a", WIDER)
        monkeypatch.setattr(Writer, "_adopt", watched)
        write(0)
        for thread in threads:
            until_ended(thread)
        assert failures == []
    assert len(threads) > 3
    assert units(store) == dict.fromkeys(range(len(threads) + 1), "C")


def test_a_transaction_takes_columns_that_came_later(anywhere: Store) -> None:
    with anywhere.transaction() as txn:
        writer = txn.writer("s/a")
        writer.write(event(0))
        writer.write_batch(pa.Table.from_pylist([event(1)], SCHEMA))
        txn.flush()
        writer.write(event(2))
        anywhere.streams.evolve("s/a", WIDER)
        with pytest.raises(SchemaMismatch, match="unknown column 'color'"):
            writer.write(event(0, color="red"))
        writer.write(event(3, unit="C"))
        writer.write_batch(pa.Table.from_pylist([event(4, unit="F")], WIDER))
        anywhere.streams.scale("s/a", 3)
    assert units(anywhere) == {0: None, 1: None, 2: None, 3: "C", 4: "F"}
    assert sound(anywhere)


def test_columns_are_added_whatever_others_add_meanwhile(store: Store) -> None:
    store.streams.add_columns("s/a", {"unit": pa.string()})
    store.streams.add_columns("s/a", pa.schema([("n", SCHEMA.field("n").type), ("site", pa.large_string())]))
    assert store.streams.get("s/a").schema.columns.names == [*SCHEMA.names, "unit", "site"]
    version = store.streams.get("s/a").schema_version
    assert store.streams.add_columns("s/a", {"site": pa.string()}).schema_version == version
    with pytest.raises(SchemaMismatch, match="column 'site' can't change its type"):
        store.streams.add_columns("s/a", {"site": pa.int64()})
    assert store.streams.add_columns("s/a", {"x": pa.int8()}, request="r").schema_version == version + 1
    assert store.streams.add_columns("s/a", {"x": pa.int8()}, request="r").schema_version == version + 1
