"""Writing: what is accepted gets its pointer, in order, or an error that is its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    InvalidArgument,
    InvalidKey,
    SchemaMismatch,
    StreamNotFound,
    TooLarge,
)
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.store.helpers import SCHEMA, Rig, bodies_of, by_key, events_of, sound
from tests.waiting import PATIENCE_S, until, until_ended

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "river" if request.param == "folder" else "memory://", create=True) as opened:
        opened.scopes.create("s")
        opened.streams.create("s/raw", scaling=4)
        opened.streams.create("s/typed", schema=SCHEMA, key="device", time="at", scaling=4)
        yield opened
        assert opened._closed or sound(opened)


def passed(gate: threading.Event) -> None:
    assert gate.wait(PATIENCE_S)


# acknowledgements


def test_an_event_is_at_its_pointer_and_can_be_fetched(store: Store) -> None:
    with store.writer("s/raw") as writer:
        acks = [writer.write(f"event {i}".encode(), key=f"k{i}", time=AT) for i in range(50)]
        pointers = [ack.result() for ack in acks]
    assert len(set(pointers)) == 50
    found = {event.pointer: event for event in events_of(store, "s/raw")}
    for i, pointer in enumerate(pointers):
        for event in (found[pointer], store.fetch(pointer), store.fetch(str(pointer))):
            assert (event.key, event.time, event.body) == (f"k{i}", AT, f"event {i}".encode())


def test_an_acknowledgement_is_done_once_and_for_all(store: Store) -> None:
    writer = store.writer("s/raw")
    ack = writer.write(b"a", key="k")
    pointer = ack.result()
    assert ack.done() and ack.result() == pointer and ack.result(timeout=0) == pointer
    writer.close()
    assert ack.result() == pointer


def test_a_result_that_takes_too_long_is_a_timeout_and_the_event_still_lands() -> None:
    slow = threading.Event()
    with Rig(inline_bytes_max=0) as rig:
        rig.store.streams.create("s/raw")
        rig.blobs.before_put = lambda: passed(slow)
        writer = rig.store.writer("s/raw")
        first = writer.write(b"first")
        leader = threading.Thread(target=first.result)
        leader.start()
        until(lambda: rig.blobs.puts)
        second = writer.write(b"second")
        with pytest.raises(TimeoutError):
            second.result(timeout=0.02)
        assert not second.done()
        slow.set()
        assert second.result().offset == 1
        until_ended(leader)


async def test_acknowledgements_can_be_awaited(store: Store) -> None:
    writer = store.writer("s/raw")
    acks = [writer.write(b"x", key=str(i)) for i in range(20)]
    pointers = await asyncio.gather(*(_awaited(ack) for ack in acks))
    assert [ack.result() for ack in acks] == pointers
    assert await acks[0] == pointers[0]
    ranges = await writer.write_batch(pa.table({"key": ["a", "a"], "payload": [b"1", b"2"]}))
    assert sum(part.stop - part.start for part in ranges) == 2
    store.streams.seal("s/raw")
    with pytest.raises(ab.errors.StreamSealed):
        await writer.write(b"late")
    writer.close()


async def _awaited(ack: ab.Ack) -> ab.EventPointer:
    return await ack


async def test_a_loop_that_went_away_disturbs_nobody(store: Store) -> None:
    writer = store.writer("s/raw")
    loop = asyncio.new_event_loop()

    async def wait_for(ack: ab.Ack) -> None:
        await ack

    ack = writer.write(b"x")
    task = loop.create_task(wait_for(ack))
    loop.call_soon(loop.stop)
    await asyncio.to_thread(loop.run_forever)
    task.cancel()
    await asyncio.to_thread(loop.run_until_complete, asyncio.gather(task, return_exceptions=True))
    loop.close()
    assert ack.result().offset == 0
    assert (await writer.write(b"y")).offset >= 0
    writer.close()


def test_a_batchs_acknowledgement_reports_ranges_and_single_pointers(store: Store) -> None:
    keys = [f"k{i % 13}" for i in range(500)]
    with store.writer("s/raw") as writer:
        ack = writer.write_batch(pa.table({"key": keys, "payload": [b"%d" % i for i in range(500)]}))
        ranges = ack.result()
    assert sum(part.stop - part.start for part in ranges) == 500
    assert list(ranges) == sorted(ranges)
    found = {event.pointer: event.body for event in events_of(store, "s/raw")}
    assert [found[ack.pointer(i)] for i in range(500)] == [b"%d" % i for i in range(500)]
    assert {pointer.segment for pointer in found} == {part.segment for part in ranges}


# what an event is


def test_a_raw_event_is_bytes_or_text_and_gets_the_present_as_its_time(store: Store) -> None:
    before = store.runtime.clock.now()
    mutable = bytearray(b"changed later")
    with store.writer("s/raw") as writer:
        for i, event in enumerate([b"bytes", "téxt", mutable, memoryview(b"view"), b""]):
            writer.write(event, key=i)
        mutable[:] = b"no matter...."
    found = {int(event.key): event for event in events_of(store, "s/raw")}
    assert [found[i].body for i in range(5)] == [b"bytes", "téxt".encode(), b"changed later", b"view", b""]
    after = store.runtime.clock.now()
    assert all(event.time_us is not None and before <= event.time_us <= after for event in found.values())


def test_events_with_and_without_a_time_of_their_own_share_a_chunk(store: Store) -> None:
    with store.writer("s/raw") as writer:
        writer.write(b"now", key="a")
        writer.write(b"then", key="a", time=AT)
        writer.write(b"now", key="a")
        writer.write(b"text", key="a", time="2026-01-31T12:00:00Z")
        writer.write(b"number", key="a", time=1)
    times = [event.time_us for event in events_of(store, "s/raw")]
    assert times[1] == times[3] == int(AT.timestamp() * 1e6) and times[4] == 1
    assert times[0] is not None and times[0] > int(AT.timestamp() * 1e6)


def test_keys_of_every_kind_are_stored_as_their_canonical_text(store: Store) -> None:
    keys: list[Any] = ["a", "", 7, -1, True, AT.date(), UUID(int=5), None]
    with store.writer("s/raw") as writer:
        for key in keys:
            writer.write(b"x", key=key)
    expected = {"a", "", "7", "-1", "true", "2026-01-31", str(UUID(int=5)), None}
    assert {event.key for event in events_of(store, "s/raw")} == expected


def test_a_typed_event_is_a_mapping_that_the_caller_may_use_again(store: Store) -> None:
    row: dict[str, Any] = {"device": "a", "at": AT}
    with store.writer("s/typed") as writer:
        for n in range(5):
            row["n"] = n
            writer.write(row)
        row.clear()
    assert [event.body for event in events_of(store, "s/typed")] == [
        {"device": "a", "at": AT, "n": n} for n in range(5)
    ]


def test_batches_of_every_library_are_written(store: Store) -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int64()), "device": ["a", "a"]})
    sources: list[Any] = [table, table.to_batches()[0], table.to_pandas(), pl.from_arrow(table)]
    sources.append(pd.DataFrame({"device": ["a"], "n": [7], "at": [pd.Timestamp(AT)]}))
    with store.writer("s/typed") as writer:
        for source in sources:
            writer.write_batch(source)
    assert [event.body["n"] for event in events_of(store, "s/typed")] == [1, 2] * 4 + [7]


def test_events_without_a_key_spread_over_the_segments(store: Store) -> None:
    with store.writer("s/raw") as writer:
        writer.write_batch(pa.table({"payload": [b"x"] * 2_000}))
        for _ in range(2_000):
            writer.write(b"y")
    counts = [
        sum(1 for e in events_of(store, "s/raw") if e.segment == s.id) for s in store.streams.view("s/raw").current
    ]
    assert sum(counts) == 4_000 and min(counts) > 900


def test_an_empty_batch_is_durable_at_once(store: Store) -> None:
    with store.writer("s/raw") as writer:
        ack = writer.write_batch(pa.table({"payload": pa.array([], pa.binary())}))
        assert ack.done() and ack.result() == ()


# order


def test_single_events_and_batches_of_one_thread_keep_their_order(store: Store) -> None:
    with store.writer("s/typed") as writer:
        n = 0
        for i in range(60):
            if i % 3:
                writer.write({"device": f"d{i % 2}", "n": n})
                n += 1
            else:
                writer.write_batch(pa.table({"device": [f"d{j % 2}" for j in range(20)], "n": range(n, n + 20)}))
                n += 20
    found = by_key(events_of(store, "s/typed"))
    assert sorted(row["n"] for rows in found.values() for row in rows) == list(range(n))
    for rows in found.values():
        assert [row["n"] for row in rows] == sorted(row["n"] for row in rows)


@pytest.mark.parametrize("inline_bytes_max", [limits.INLINE_BYTES_MAX, 0])
def test_the_order_of_each_key_is_kept_by_many_threads_with_many_commits_on_their_way(
    tmp_path: Path, inline_bytes_max: int
) -> None:
    settings = Settings(inline_bytes_max=inline_bytes_max, commit_bytes_max=8_192, pipeline_bytes_min=512)
    with ab.connect(tmp_path / "river", settings=settings, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw", scaling=3)
        shared = store.writer("s/raw")
        failures: list[BaseException] = []

        def work(name: int) -> None:
            try:
                own = store.writer("s/raw")
                acks = []
                for i in range(400):
                    writer = shared if name % 2 else own
                    acks.append(writer.write(b"%d" % i, key=f"{name}-{i % 5}"))
                    if i % 97 == 0:
                        acks[-1].result()
                own.close()
            except BaseException as exc:
                failures.append(exc)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        until_ended(*threads)
        shared.flush()
        assert not failures
        found = by_key(events_of(store, "s/raw"))
        assert found == {f"{name}-{r}": [b"%d" % i for i in range(r, 400, 5)] for name in range(6) for r in range(5)}
        assert sound(store)


# atomic batches, inline and blobs


def test_an_atomic_batch_over_all_segments_appears_at_once(store: Store) -> None:
    seen: list[int] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.append(sum(1 for _ in events_of(store, "s/typed")))

    reader = threading.Thread(target=look)
    reader.start()
    with store.writer("s/typed") as writer:
        for _ in range(20):
            writer.write_batch(pa.table({"device": [f"d{i}" for i in range(40)]}), atomic=True).result()
    stop.set()
    until_ended(reader)
    assert all(count % 40 == 0 for count in seen)
    assert len(events_of(store, "s/typed")) == 800


def test_an_atomic_batch_falls_whole(store: Store) -> None:
    """Only one of the segments it goes to refuses its part; the others would take theirs."""
    view = store.streams.view("s/typed")
    log = view.open_log(view.current[1].id)
    assert log is not None
    with store.catalog.writing() as txn:
        txn.update_log(replace(txn.logs([log])[log], fence=5))
    writer = store.writer("s/typed", fence=4)
    ack = writer.write_batch(pa.table({"device": [f"d{i}" for i in range(40)]}), atomic=True)
    with pytest.raises(ab.errors.Fenced):
        ack.result()
    writer.close()
    assert events_of(store, "s/typed") == []


@pytest.mark.parametrize(("payload", "blobs"), [(100, 0), (limits.INLINE_BYTES_MAX, 1)])
def test_small_commits_are_inlined_and_large_ones_get_a_blob(payload: int, blobs: int) -> None:
    with Rig() as rig:
        rig.store.streams.create("s/raw", scaling=2)
        with rig.store.writer("s/raw") as writer:
            writer.write_batch(pa.table({"key": ["a", "b", "c"], "payload": [bytes(payload)] * 3}), atomic=True)
        assert rig.blobs.puts == blobs
        assert bodies_of(rig.store, "s/raw") == [bytes(payload)] * 3
        assert sound(rig.store)


def test_one_commit_serves_all_who_wait() -> None:
    """Group commit: what arrives while a commit is under way makes up the next one."""
    gate = threading.Event()
    with Rig() as rig:
        rig.store.streams.create("s/raw")
        rig.catalog.before = lambda commit: passed(gate)
        writers = [rig.store.writer("s/raw") for _ in range(10)]
        acks = [writer.write(b"x") for writer in writers]
        until(lambda: rig.catalog.commits)
        acks += [writer.write(b"y") for writer in writers]
        gate.set()
        for ack in acks:
            ack.result()
        assert rig.catalog.commits <= 4


# limits and mistakes


def test_an_event_over_the_limit_is_refused_and_one_at_it_is_not(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", settings=Settings(large_event_bytes_max=1_000), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw")
        store.streams.create("s/typed", schema=[("text", pa.string()), ("list", pa.list_(pa.string()))])
        raw, typed = store.writer("s/raw"), store.writer("s/typed")
        assert raw.write(bytes(1_000)).result().offset == 0
        assert typed.write({"text": "x" * 1_000}).result().offset == 0
        mistakes = [
            lambda: raw.write(bytes(1_001)),
            lambda: raw.write("é" * 501),
            lambda: raw.write(memoryview(np.zeros(126).data)),
            lambda: raw.write_batch(pa.table({"payload": [b"", bytes(1_001)]})),
            lambda: typed.write({"text": "x" * 1_001}),
            lambda: typed.write({"list": ["x" * 600] * 2}),
            lambda: typed.write_batch(pa.table({"text": ["x" * 1_001]})),
            lambda: typed.write_batch(pa.table({"list": [["a"], ["x" * 600] * 2]})),
            lambda: store.stager("s/typed").write(pa.table({"list": [["a"], ["x" * 600] * 2]})),
        ]
        for mistake in mistakes:
            with pytest.raises(TooLarge) as caught:
                mistake()
            assert caught.value.limit == 1_000 < caught.value.size
        assert raw.write(b"fine").result().offset == 1
        assert typed.write({"text": "fine"}).result().offset == 1
        assert sound(store)


def test_a_batch_over_the_limit_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 1_000)
    with store.writer("s/raw") as writer, pytest.raises(TooLarge, match="a batch"):
        writer.write_batch(pa.table({"payload": [bytes(600)] * 2}))


def test_a_batch_larger_than_a_commit_is_cut_into_several(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", settings=Settings(commit_bytes_max=10_000), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw", scaling=3)
        with store.writer("s/raw") as writer:
            ack = writer.write_batch(
                pa.table({"key": [f"k{i % 9}" for i in range(3_000)], "payload": [bytes(50)] * 3_000})
            )
            assert sum(part.stop - part.start for part in ack.result()) == 3_000
            assert len({ack.pointer(i) for i in range(3_000)}) == 3_000
        assert sound(store)


MISTAKES: list[tuple[str, Any, dict[str, Any], type[AnabranchError]]] = [
    ("raw", 5, {}, SchemaMismatch),
    ("raw", {"payload": b"x"}, {}, SchemaMismatch),
    ("raw", None, {}, SchemaMismatch),
    ("raw", "\ud800", {}, SchemaMismatch),
    ("raw", b"x", {"key": 1.5}, InvalidKey),
    ("raw", b"x", {"key": b"k"}, InvalidKey),
    ("raw", b"x", {"key": "\ud800"}, InvalidKey),
    ("raw", b"x", {"key": "k" * (limits.KEY_BYTES_MAX + 1)}, TooLarge),
    ("raw", b"x", {"time": "soon"}, InvalidArgument),
    ("raw", b"x", {"time": 1 << 63}, InvalidArgument),
    ("typed", b"x", {}, InvalidArgument),
    ("typed", {"celsius": 1.0}, {}, SchemaMismatch),
    ("typed", {"n": "one"}, {}, SchemaMismatch),
    ("typed", {"n": 1.5}, {}, SchemaMismatch),
    ("typed", {"at": "soon"}, {}, SchemaMismatch),
    ("typed", {"device": 5}, {}, SchemaMismatch),
    ("typed", {"device": "k" * (limits.KEY_BYTES_MAX + 1)}, {}, TooLarge),
    ("typed", {"device": "\ud800"}, {}, InvalidKey),
    ("typed", {"device": "a"}, {"key": "a"}, InvalidArgument),
    ("typed", {"device": "a"}, {"time": AT}, InvalidArgument),
]


@pytest.mark.parametrize(("stream", "event", "options", "error"), MISTAKES)
@pytest.mark.parametrize("segments", [1, 3])
def test_a_mistake_is_one_clear_error_and_disturbs_no_other_event(
    stream: str, event: Any, options: dict[str, Any], error: type[AnabranchError], segments: int
) -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        store.streams.create("s/raw", scaling=segments)
        store.streams.create("s/typed", schema=SCHEMA, key="device", time="at", scaling=segments)
        good: Any = b"good" if stream == "raw" else {"device": "a"}
        writer = store.writer(f"s/{stream}")
        acks = [writer.write(good)]
        with pytest.raises(error) as caught:
            writer.write(event, **options)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
        acks.append(writer.write(good))
        writer.close()
        assert len({ack.result() for ack in acks}) == 2
        assert len(events_of(store, f"s/{stream}")) == 2


def test_a_value_that_only_its_column_refuses_fails_alone_among_its_neighbours(store: Store) -> None:
    """A number too large for its column is found when the chunk is made a batch."""
    writer = store.writer("s/typed")
    acks = [writer.write({"device": f"d{i % 3}", "n": 1 << 40 if i in (3, 7) else i}) for i in range(10)]
    for i, ack in enumerate(acks):
        if i in (3, 7):
            with pytest.raises(SchemaMismatch, match="'n' takes int32"):
                ack.result()
        else:
            ack.result()
    with pytest.raises(SchemaMismatch, match="'n' takes int32"):
        writer.flush()
    writer.flush()
    writer.close()
    assert sorted(event.body["n"] for event in events_of(store, "s/typed")) == [0, 1, 2, 4, 5, 6, 8, 9]


def test_a_chunk_of_nothing_but_wrong_values_is_reported_to_all_who_wait(store: Store) -> None:
    writer = store.writer("s/typed")
    acks = [writer.write({"n": 1 << 40}) for _ in range(20)]
    results: list[object] = []

    def wait(ack: ab.Ack) -> None:
        try:
            results.append(ack.result(timeout=PATIENCE_S))
        except SchemaMismatch as exc:
            results.append(type(exc))

    threads = [threading.Thread(target=wait, args=(ack,)) for ack in acks]
    for thread in threads:
        thread.start()
    until_ended(*threads)
    assert results == [SchemaMismatch] * 20
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"device": ["a"], "celsius": [1.0]}),
        pa.table({"device": ["a", "b"], "n": [1, 1 << 40]}),
        pa.table({"device": ["a", "k" * (limits.KEY_BYTES_MAX + 1)]}),
        [{"device": "a"}],
    ],
)
def test_a_batch_with_a_mistake_is_refused_whole_and_at_once(store: Store, data: Any) -> None:
    with store.writer("s/typed") as writer:
        before = writer.write({"device": "a"})
        with pytest.raises(InvalidArgument):
            writer.write_batch(data)
        writer.write({"device": "b"})
        assert before.result().offset == 0
    assert len(events_of(store, "s/typed")) == 2


@pytest.mark.parametrize("name", ["s/none", "none/raw"])
def test_an_unknown_stream_is_said_to_be_unknown(store: Store, name: str) -> None:
    with pytest.raises((StreamNotFound, ab.errors.ScopeNotFound)):
        store.writer(name)


# back-pressure


def test_back_pressure_bounds_what_is_pending() -> None:
    most = 64_000
    with Rig(pending_bytes_max=most, commit_bytes_max=8_000, pipeline_bytes_min=4_000) as rig:
        rig.store.streams.create("s/raw", scaling=2)
        writer = rig.store.writer("s/raw")
        peak = 0
        for i in range(300):
            writer.write_batch(pa.table({"key": [f"k{i}"], "payload": [bytes(2_000)]}))
            peak = max(peak, writer._queue.unsettled_bytes)
        assert peak <= most + 4_000
        writer.close()
        assert writer._queue.unsettled_bytes == 0
        assert len(events_of(rig.store, "s/raw")) == 300


def test_a_writer_that_is_never_flushed_does_not_remember_what_is_done() -> None:
    with Rig() as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        for _ in range(1_000):
            writer.write(b"x").result()
        assert len(writer._queue._outstanding) < 200
        writer.close()


def test_a_stream_of_many_segments_takes_one_batch_over_all_of_them(store: Store) -> None:
    store.streams.create("s/wide", scaling=200)
    with store.writer("s/wide") as writer:
        ranges = writer.write_batch(pa.table({"payload": [b"x"] * 5_000})).result()
    assert len(ranges) == 200
    assert {s.range for s in store.streams.view("s/wide").current} == set(FULL_KEY_RANGE.split(200))
