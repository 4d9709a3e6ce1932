"""Large events that are refused, lost, written again or waited for."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import AppendUncertain, Closed, ConditionFailed, DiskFull, StreamSealed, TooLarge
from anabranch.model.append import Commit, Refusal, Refused, Verdict
from anabranch.model.ids import Micros
from anabranch.store import Store
from tests.store.helpers import Once, Rig, bodies_of, sound
from tests.store.writing.large_events.kit import LARGE, SETTINGS, body, extents, opened
from tests.waiting import PATIENCE_S, until, until_ended

# seals, conditions, lost answers, failures


def test_large_events_in_flight_at_a_scale_are_routed_anew_in_order(tmp_path: Path) -> None:
    with opened("sqlite+folder", tmp_path) as store, store.writer("s/raw") as writer:
        for number in range(4):
            writer.write(f"{number}".encode() + body(number), key="k")
            store.streams.scale("s/raw", 1 + (number + 1) % 3)
            writer.write(f"{number}".encode(), key="k")
        writer.flush()
        assert [int(each[:1]) for each in bodies_of(store, "s/raw")] == [0, 0, 1, 1, 2, 2, 3, 3]
        assert sound(store)


def test_a_seal_refuses_a_large_event_as_any_other(store: Store) -> None:
    writer = store.writer("s/raw")
    writer.write(b"x").result()
    store.streams.seal("s/raw")
    with pytest.raises(StreamSealed):
        writer.write(body(1)).result()
    writer.close()  # raises no refusal that was raised before


def test_a_large_event_may_depend_on_a_condition(store: Store) -> None:
    writer = store.writer("s/raw")
    writer.write(b"0")
    assert writer.write(body(1), expected=1).result().offset == 1
    with pytest.raises(ConditionFailed):
        writer.write(body(2), expected=1).result()
    batch = pa.table({"payload": pa.array([body(3)], pa.binary())})
    assert writer.write_batch(batch, expected=2).result()[0].stop == 3
    assert bodies_of(store, "s/raw") == [b"0", body(1), body(3)]
    with pytest.raises(ConditionFailed):
        writer.flush()


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_doubles_no_large_event_and_loses_none(landed: bool) -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        once = Once(AppendUncertain("lost"))
        if landed:
            rig.catalog.after = once
        else:
            rig.catalog.before = once
        acks = [writer.write(body(number), key="k") for number in range(3)]
        assert [ack.result().offset for ack in acks] == [0, 1, 2]
        assert bodies_of(rig.store, "s/raw") == [body(number) for number in range(3)]


def test_behind_the_collectors_horizon_a_large_event_is_written_again() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        real = rig.catalog.commit
        asked: list[Commit] = []

        def expired(commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
            asked.append(commit)
            if len(asked) == 1:
                now = rig.runtime.clock.now()
                return tuple(tuple(Refused(Refusal.EXPIRED, now) for _ in unit.parts) for unit in commit.units)
            return real(commit)

        rig.catalog.commit = expired  # type: ignore[method-assign]
        assert writer.write(body(1)).result().offset == 0
        (first,), (second,) = (each.blobs for each in asked)
        assert first.key != second.key
        assert first.begun_at <= second.begun_at
        assert [each.key for each in extents(rig.store)] == [second.key]
        assert bodies_of(rig.store, "s/raw") == [body(1)]


def test_what_stands_beside_an_event_that_can_not_be_written_again_keeps_its_answer() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw", writer_id="w")
        real, full = rig.catalog.commit, DiskFull("no space is left")

        def expired(commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
            """The store's horizon has passed the large event's blob, and there is no room for another."""
            with rig.catalog.writing() as txn:
                txn.set_horizon(Micros(max(blob.begun_at for blob in commit.blobs) + 1))
            rig.catalog.commit = real  # type: ignore[method-assign]
            rig.blobs.before_put = Once(full)
            return real(commit)

        committing, late = threading.Event(), threading.Event()

        def held(commit: Commit) -> None:
            committing.set()
            assert late.wait(PATIENCE_S)

        rig.catalog.before = held
        begun = writer.write(b"0", key="k")
        thread = threading.Thread(target=begun.result)
        thread.start()
        assert committing.wait(PATIENCE_S)
        # These two make up the next commit.
        landed, refused = writer.write(b"1", key="k"), writer.write(body(2), key="k")
        rig.catalog.before = lambda commit: None
        rig.catalog.commit = expired  # type: ignore[method-assign]
        late.set()
        thread.join()
        assert landed.result().offset == 1
        with pytest.raises(DiskFull):
            refused.result()
        assert writer.write(b"3", key="k").result().offset == 2
        assert bodies_of(rig.store, "s/raw") == [b"0", b"1", b"3"]
        writer.close()  # raises no refusal that was raised before


def test_an_event_for_which_there_is_no_room_is_refused_alone_and_its_ack_says_so() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        first = writer.write(b"first")
        rig.blobs.before_put = Once(DiskFull("no space is left"))
        refused, last = writer.write(body(1)), writer.write(b"last")
        assert [first.result().offset, last.result().offset] == [0, 1]
        with pytest.raises(DiskFull):
            refused.result()
        with pytest.raises(DiskFull):
            writer.flush()
        rig.blobs.before_put = lambda: None
        table = pa.table({"payload": pa.array([b"2", body(3), b"4"], pa.binary())})
        failing = Once(DiskFull("no space is left"))
        rig.blobs.before_put = failing
        ack = writer.write_batch(table)
        assert ack.pointer(0).offset == 2
        assert ack.pointer(2).offset == 3
        with pytest.raises(DiskFull):
            ack.pointer(1)
        assert bodies_of(rig.store, "s/raw") == [b"first", b"last", b"2", b"4"]
        writer.close()  # raises no refusal that was raised before


def test_small_events_of_others_do_not_wait_for_a_large_one_that_is_being_written() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer, other = rig.store.writer("s/raw"), rig.store.writer("s/raw")
        gate = threading.Event()
        rig.blobs.before_put = lambda: gate.wait(PATIENCE_S)  # type: ignore[assignment,return-value]
        thread = threading.Thread(target=lambda: writer.write(body(1)).result())
        thread.start()
        until(lambda: rig.blobs.puts == 1)
        assert other.write(b"meanwhile").result().offset == 0
        assert writer.write(b"of the same writer").result().offset == 1
        gate.set()
        until_ended(thread)
        assert bodies_of(rig.store, "s/raw") == [b"meanwhile", b"of the same writer", body(1)]


def test_a_writer_has_one_large_event_on_its_way_at_a_time() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        inside, most = [0], [0]
        put = rig.blobs.put

        def slow(key: str, chunks: Any) -> None:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)  # in which another would come in
            put(key, chunks)
            inside[0] -= 1

        rig.blobs.put = slow  # type: ignore[method-assign]
        threads = [threading.Thread(target=writer.write, args=(body(n),)) for n in range(4)]
        for thread in threads:
            thread.start()
        until_ended(*threads)
        writer.flush()
        assert most == [1]
        assert len(bodies_of(rig.store, "s/raw")) == 4


def test_a_closed_writer_takes_no_large_event(store: Store) -> None:
    writer = store.writer("s/raw")
    writer.close()
    with pytest.raises(Closed):
        writer.write(body(1))
    with pytest.raises(Closed):
        writer.write_batch(pa.table({"payload": pa.array([body(1)], pa.binary())}))


def test_beyond_the_limit_one_error_names_both_sizes(store: Store) -> None:
    size, limit = limits.MIB + 1, limits.MIB
    writer = store.writer("s/raw")
    batch = pa.table({"payload": pa.array([b"x", bytes(size)], pa.binary())})

    def in_a_transaction() -> None:
        with store.transaction() as txn:
            txn.writer("s/raw").write(bytes(size))

    for write in (
        lambda: writer.write(bytes(size)),
        lambda: writer.write(memoryview(bytes(size))),
        lambda: writer.write_batch(batch),
        lambda: writer.write_batch(batch, atomic=True),
        lambda: store.stager("s/raw").write(batch),
        in_a_transaction,
    ):
        with pytest.raises(TooLarge, match=r"is 1,048,577 bytes, over the limit of 1,048,576") as caught:
            write()
        assert (caught.value.size, caught.value.limit) == (size, limit)
    writer.write(b"fine").result()
    assert bodies_of(store, "s/raw") == [b"fine"]


def test_entries_of_shared_state_stay_below_the_usual_limit(store: Store) -> None:
    shared = store.shared.synchronizer("s/state", initial="")
    with pytest.raises(TooLarge, match="an entry of a revisioned stream"):
        shared.update(lambda _: "x" * LARGE)
    assert shared.fetch() == ""


def test_a_file_of_bytes_is_written_in_chunks_as_ever(store: Store) -> None:
    with store.bytes("s/file", "xb") as file:
        file.write(body(1, 300_000))
    with store.bytes("s/file") as file:
        assert file.read() == body(1, 300_000)
    assert all(each.stop - each.start >= 1 for each in extents(store, "s/file"))


def test_the_collector_removes_what_was_written_ahead_and_never_committed() -> None:
    with Rig(event_bytes_max=SETTINGS.event_bytes_max) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        writer.write(body(1)).result()
        rig.store.streams.seal("s/raw")
        with pytest.raises(StreamSealed):
            writer.write(body(2)).result()
        writer.close()  # raises no refusal that was raised before
        blobs = [each.key for each in rig.blobs.list("commits/")] or [each.key for each in rig.blobs.list()]
        rig.store.collect(horizon_us=0)
        left = [each.key for each in rig.blobs.list()]
        assert len([key for key in blobs if key in left]) == 1
        assert bodies_of(rig.store, "s/raw") == [body(1)]
