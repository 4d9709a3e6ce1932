"""Writing under guard: conditions, fences, writers with names, seals and deletions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    AppendUncertain,
    ConditionFailed,
    DiskFull,
    Fenced,
    InvalidArgument,
    OutOfSequence,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
    WriterUnknown,
)
from anabranch.log import commit as committing
from anabranch.model.append import Progress
from anabranch.model.ids import Micros, WriterId
from anabranch.store import Store
from tests.store.helpers import SCHEMA, Once, Rig, bodies_of, by_key, events_of, sound
from tests.waiting import until, until_ended


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "river", create=True) as opened:
        opened.scopes.create("s")
        opened.streams.create("s/raw")
        opened.streams.create("s/wide", scaling=4)
        yield opened
        assert sound(opened)


# conditions


def test_a_conditional_write_lands_only_where_the_segment_is_as_expected(store: Store) -> None:
    writer = store.writer("s/raw")
    assert writer.write(b"0", expected=0).result().offset == 0
    stale = writer.write(b"no", expected=0)
    with pytest.raises(ConditionFailed) as caught:
        stale.result()
    assert (caught.value.expected, caught.value.actual) == (0, 1)
    assert writer.write(b"1", expected=1).result().offset == 1
    assert writer.write_batch(pa.table({"payload": [b"2", b"3"]}), expected=2).result()[0].stop == 4
    assert bodies_of(store, "s/raw") == [b"0", b"1", b"2", b"3"]
    writer.close()


def test_writes_around_a_conditional_one_keep_their_order(store: Store) -> None:
    with store.writer("s/raw") as writer:
        acks = [writer.write(b"0"), writer.write(b"1"), writer.write(b"2", expected=2), writer.write(b"3")]
        assert [ack.result().offset for ack in acks] == [0, 1, 2, 3]
    assert bodies_of(store, "s/raw") == [b"0", b"1", b"2", b"3"]


def test_a_failed_condition_lets_later_writes_pass(store: Store) -> None:
    writer = store.writer("s/raw")
    acks = [writer.write(b"no", expected=9), writer.write(b"0"), writer.write(b"no", expected=0), writer.write(b"1")]
    assert acks[1].result().offset == 0 and acks[3].result().offset == 1
    for ack in (acks[0], acks[2]):
        with pytest.raises(ConditionFailed):
            ack.result()
    writer.close()


def test_the_condition_counts_the_segments_events_after_scaling_and_truncating_too(store: Store) -> None:
    with store.writer("s/raw") as writer:
        for _ in range(3):
            writer.write(b"x")
        writer.flush()
        store.streams.truncate("s/raw", store.cuts.tail("s/raw"))
        assert writer.write(b"y", expected=3).result().offset == 3
        store.streams.scale("s/raw", 2)
        assert writer.write(b"z", key="k", expected=0).result().offset == 0


def test_a_conditional_batch_over_several_segments_is_refused(store: Store) -> None:
    writer = store.writer("s/wide")
    ack = writer.write_batch(pa.table({"key": [f"k{i}" for i in range(50)], "payload": [b"x"] * 50}), expected=0)
    with pytest.raises(InvalidArgument, match="one segment"):
        ack.result()
    assert writer.write(b"fine", key="k").result().offset == 0
    writer.close()


def test_of_contending_conditional_writers_one_wins_each_place(store: Store) -> None:
    """A counter by compare and set: nobody's increment is lost."""
    wins = []

    def work(name: int) -> None:
        mine, expected = 0, 0
        writer = store.writer("s/raw")
        while mine < 20:
            try:
                expected = writer.write(b"%d" % name, expected=expected).result().offset + 1
                mine += 1
            except ConditionFailed as exc:
                expected = exc.actual
        wins.append(name)
        writer.close()  # every refusal was raised by its acknowledgement

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    until_ended(*threads)
    assert sorted(wins) == [0, 1, 2, 3]
    bodies = bodies_of(store, "s/raw")
    assert len(bodies) == 80 and all(bodies.count(b"%d" % name) == 20 for name in range(4))


# fences


def test_a_raised_fence_refuses_writers_that_carry_a_lower_one(store: Store) -> None:
    old, free = store.writer("s/wide", fence=1), store.writer("s/wide")
    old.write(b"before", key="a").result()
    store.streams.fence("s/wide", 2)
    ack = old.write(b"after", key="a")
    with pytest.raises(Fenced) as caught:
        ack.result()
    assert (caught.value.carried, caught.value.fence) == (1, 2)
    with store.writer("s/wide", fence=2) as new:
        new.write(b"new", key="a").result()
    free.write(b"no fence at all", key="a").result()
    assert by_key(events_of(store, "s/wide")) == {"a": [b"before", b"new", b"no fence at all"]}
    old.close()


@pytest.mark.parametrize("number", ["1", 1.5, True, -1, 2**63])
def test_fences_and_conditions_that_are_no_numbers_of_a_catalog_are_refused_at_once(
    store: Store, number: object
) -> None:
    with pytest.raises(InvalidArgument, match=r"expected .*fence.* as an integer"):
        store.streams.fence("s/raw", number)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="expected `fence` as an integer"):
        store.writer("s/raw", fence=number)  # type: ignore[arg-type]
    with store.writer("s/raw", fence=0) as writer:
        for append in (writer.write, writer.write_batch):
            event = b"x" if append == writer.write else pa.table({"payload": [b"x"]})
            with pytest.raises(InvalidArgument, match="expected `expected` as an integer"):
                append(event, expected=number)  # type: ignore[arg-type]
        writer.write(b"first", expected=0).result()
    assert bodies_of(store, "s/raw") == [b"first"]
    assert sound(store)


def test_a_fence_never_sinks_and_outlives_scaling(store: Store) -> None:
    store.streams.fence("s/wide", 5)
    with pytest.raises(InvalidArgument, match="expected a fence of at least 5"):
        store.streams.fence("s/wide", 4)
    store.streams.fence("s/wide", 5)
    store.streams.scale("s/wide", 7)
    store.streams.scale("s/wide", 2)
    writer = store.writer("s/wide", fence=4)
    ack = writer.write(b"x", key="a")
    with pytest.raises(Fenced):
        ack.result()
    writer.close()


# writers with names


def progress_of(store: Store, writer: str) -> int:
    """How many events a writer's name has in the open logs."""
    view = store.streams.view("s/wide")
    logs = [log for segment in view.current if (log := view.open_log(segment.id)) is not None]
    with store.catalog.reading() as reading:
        return sum((reading.progress(log, WriterId(writer)) or Progress()).next for log in logs)


def test_a_named_writer_goes_on_where_the_last_of_its_name_stopped(store: Store) -> None:
    for round_ in range(3):
        with store.writer("s/wide", writer_id="me") as writer:
            assert writer.id == "me"
            for i in range(20):
                writer.write(b"%d" % (20 * round_ + i), key=f"k{i % 4}")
    assert progress_of(store, "me") == 60
    for key, bodies in by_key(events_of(store, "s/wide")).items():
        assert bodies == [b"%d" % i for i in range(60) if f"k{i % 4}" == key]


@pytest.mark.parametrize("name", ["", 5, "\udcff"])
def test_a_writer_is_named_by_text(store: Store, name: Any) -> None:
    with pytest.raises(InvalidArgument, match="writer_id"):
        store.writer("s/wide", writer_id=name)
    with pytest.raises(InvalidArgument, match="producer's name"):
        store.writer("s/wide", producer=name)


def test_a_new_writer_of_a_name_fences_off_the_old_one(store: Store) -> None:
    old = store.writer("s/wide", writer_id="me")
    old.write(b"old", key="a").result()
    new = store.writer("s/wide", writer_id="me")
    late = old.write(b"late", key="a")
    with pytest.raises(Fenced):
        late.result()
    new.write(b"new", key="a").result()
    late = old.write(b"later", key="a")
    with pytest.raises(Fenced):
        late.result()
    new.close()
    assert bodies_of(store, "s/wide") == [b"old", b"new"]
    old.close()


def test_an_old_writers_event_is_never_taken_for_the_new_ones_of_the_same_number(store: Store) -> None:
    old = store.writer("s/wide", writer_id="me")
    with store.writer("s/wide", writer_id="me") as new:
        new.write(b"new", key="a").result()
    late = old.write(b"old", key="a")
    with pytest.raises(Fenced):
        late.result()
    assert bodies_of(store, "s/wide") == [b"new"]
    old.close()


@pytest.mark.parametrize("told", [True, False])
def test_a_fenced_writer_does_not_come_back_by_a_scale(store: Store, told: bool) -> None:
    old = store.writer("s/wide", writer_id="me")
    old.write(b"old", key="a").result()
    new = store.writer("s/wide", writer_id="me")
    if told:
        ack = old.write(b"late", key="a")
        with pytest.raises(Fenced):
            ack.result()
    store.streams.scale("s/wide", 3)
    ack = old.write(b"late", key="a")
    with pytest.raises(Fenced):
        ack.result()
    new.write(b"new", key="a").result()
    store.streams.scale("s/wide", 2)
    new.write(b"newer", key="a").result()
    new.close()
    assert bodies_of(store, "s/wide") == [b"old", b"new", b"newer"]
    old.close()


def test_two_names_do_not_disturb_each_other(store: Store) -> None:
    with store.writer("s/wide", writer_id="one") as one, store.writer("s/wide", writer_id="two") as two:
        for i in range(20):
            (one if i % 2 else two).write(b"%d" % i, key="a").result()
    assert bodies_of(store, "s/wide") == [b"%d" % i for i in range(20)]


def test_a_writer_whose_progress_was_forgotten_says_so_and_goes_on(store: Store) -> None:
    writer = store.writer("s/raw")
    writer.write(b"0").result()
    with store.catalog.writing() as txn:
        assert txn.drop_progress_before(Micros(1 << 62), 100) == 1
    ack = writer.write(b"lost")
    with pytest.raises(WriterUnknown):
        ack.result()
    assert writer.write(b"1").result().offset == 1
    assert bodies_of(store, "s/raw") == [b"0", b"1"]
    writer.close()


def test_a_writer_ahead_of_a_log_that_went_back_says_so_and_goes_on(store: Store) -> None:
    writer = store.writer("s/raw")
    for i in range(3):
        writer.write(b"%d" % i).result()
    (log,) = writer._router.routes.logs
    with store.catalog.writing() as txn:
        known = txn.progress(log, writer._handle.id)
        assert known is not None
        txn.put_progress(
            log, writer._handle.id, Progress(1, known.fence, known.recent[:1]), now=store.runtime.clock.now()
        )
    ack = writer.write(b"lost")
    with pytest.raises(OutOfSequence):
        ack.result()
    assert writer.write(b"3").result().offset == 3
    writer.close()


# seals and deletions


def test_writes_to_a_sealed_stream_are_refused_and_what_was_acknowledged_stays(store: Store) -> None:
    writer = store.writer("s/wide")
    writer.write(b"before", key="a").result()
    store.streams.seal("s/wide")
    store.streams.seal("s/wide")
    ack = writer.write(b"after", key="a")
    with pytest.raises(StreamSealed, match="'s/wide' is sealed"):
        ack.result()
    for _ in range(3):  # at once now, and nobody waits for ever
        with pytest.raises(StreamSealed):
            writer.write(b"after", key="a")
        with pytest.raises(StreamSealed):
            writer.write_batch(pa.table({"payload": [b"after"]}))
    writer.close()
    with pytest.raises(StreamSealed):
        store.writer("s/wide")
    with pytest.raises(StreamSealed):
        store.streams.scale("s/wide", 2)
    assert bodies_of(store, "s/wide") == [b"before"]


def test_sealing_under_writers_loses_nothing_that_was_acknowledged(store: Store) -> None:
    acknowledged: list[bytes] = []
    started = threading.Barrier(5)

    def work(name: int) -> None:
        writer = store.writer("s/wide")
        started.wait()
        i = 0
        while True:
            try:
                acks = [
                    (b"%d-%d" % (name, i + j), writer.write(b"%d-%d" % (name, i + j), key=str(j))) for j in range(5)
                ]
            except StreamSealed:
                break
            for body, ack in acks:
                try:
                    ack.result()
                    acknowledged.append(body)
                except StreamSealed:
                    pass
            i += 5
        writer.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    until(lambda: len(acknowledged) >= 100)
    store.streams.seal("s/wide")
    until_ended(*threads)
    assert sorted(bodies_of(store, "s/wide")) == sorted(acknowledged)


def test_deleting_under_a_writer_is_reported_by_name(store: Store) -> None:
    writer = store.writer("s/wide")
    pointer = writer.write(b"before", key="a").result()
    store.streams.delete("s/wide")
    ack = writer.write(b"after", key="a")
    with pytest.raises(StreamNotFound, match="'s/wide'"):
        ack.result()
    with pytest.raises(StreamNotFound, match="'s/wide'"):
        writer.write(b"after")
    writer.close()
    with pytest.raises(StreamNotFound):
        store.fetch(pointer)
    store.streams.create("s/wide")
    assert events_of(store, "s/wide") == []


def test_a_stream_recreated_under_a_writer_is_another_stream(store: Store) -> None:
    writer = store.writer("s/raw")
    writer.write(b"old").result()
    store.streams.delete("s/raw")
    store.streams.create("s/raw")
    ack = writer.write(b"old")
    with pytest.raises(StreamNotFound):
        ack.result()
    writer.close()
    assert bodies_of(store, "s/raw") == []


def test_a_writer_opened_before_the_schema_evolved_goes_on_with_its_own_until_one_does_not_fit(store: Store) -> None:
    store.streams.create("s/typed", schema=SCHEMA, key="device", scaling=2)
    writer = store.writer("s/typed")
    writer.write({"device": "a", "n": 1}).result()
    wider = pa.schema([*SCHEMA, ("extra", pa.string())])
    store.streams.evolve("s/typed", wider)
    store.streams.scale("s/typed", 3)  # which has the writer read its routes, and the new schema, anew
    writer.write({"device": "a", "n": 2}).result()
    with store.writer("s/typed") as newer:
        newer.write({"device": "a", "n": 3, "extra": "x"}).result()
    writer.write({"device": "a", "n": 4}).result()
    writer.write({"device": "a", "n": 5, "extra": "y"})
    writer.close()
    found = [(event.body["n"], event.body["extra"]) for event in events_of(store, "s/typed")]
    assert found == [(1, None), (2, None), (3, "x"), (4, None), (5, "y")]


def test_an_atomic_batch_sent_back_by_a_seal_leaves_no_hole_in_the_segments_that_stay_open(tmp_path: Path) -> None:
    """A scale seals one of the segments that the batch goes to; more for the others is on its way behind it."""
    with Rig(tmp_path, commit_bytes_max=2_000, pipeline_bytes_min=1) as rig:
        rig.store.streams.create("s/raw", scaling=2)
        writer = rig.store.writer("s/raw")
        table = pa.table({"key": [f"k{i}" for i in range(20)], "payload": [b"x"] * 20})
        for round_ in range(10):
            acks = [writer.write_batch(table, atomic=i % 2 == 0) for i in range(10)]
            first = rig.store.streams.view("s/raw").current[0].id
            rig.store.streams.scale("s/raw", split=first)
            acks += [writer.write_batch(table, atomic=i % 2 == 0) for i in range(10)]
            assert sum(part.stop - part.start for ack in acks for part in ack.result()) == 400, round_
        writer.close()
        assert sound(rig.store)


# failures of the ports


@pytest.mark.parametrize("landed_before", [0, 5])
@pytest.mark.parametrize("error", [DiskFull("no space"), StoreUnavailable("gone"), MemoryError()])
@pytest.mark.parametrize("port", ["blobs", "catalog"])
def test_after_a_failure_later_events_are_taken_in_order(
    tmp_path: Path, error: Exception, port: str, landed_before: int
) -> None:
    with Rig(tmp_path, inline_bytes_max=0, commit_bytes_max=500, pipeline_bytes_min=1) as rig:
        rig.store.streams.create("s/raw", scaling=2)
        writer = rig.store.writer("s/raw")
        for i in range(landed_before):
            writer.write(b"%d" % i, key="a").result()
        once = Once(error, 1 + (landed_before > 0))

        def fail(*_: object) -> None:
            if once.left:
                time.sleep(0.05)  # meanwhile the next commit is encoded and numbered
            once()

        if port == "blobs":
            rig.blobs.before_put = fail
        else:
            rig.catalog.before = fail
        # Pieces that do not fit one commit together: some are on their way when one of them fails.
        acks = [writer.write_batch(pa.table({"key": ["a"], "payload": [b"%d" % i]})) for i in range(landed_before, 60)]
        landed = [b"%d" % i for i in range(landed_before)]
        refusals = set()
        for i, ack in enumerate(acks, landed_before):
            try:
                ack.result()
                landed.append(b"%d" % i)
            except ab.errors.AnabranchError as exc:
                refusals.add(type(exc))
        expected: type[Exception] = type(error) if isinstance(error, StoreUnavailable) else StoreUnavailable
        if isinstance(error, MemoryError) and port == "catalog":
            expected = AppendUncertain
        assert refusals == {expected}
        assert landed[-1] == b"59"
        assert bodies_of(rig.store, "s/raw") == landed
        writer.close()
        assert sound(rig.store)


def test_a_lost_answer_is_resolved_without_the_caller_noticing(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.store.streams.create("s/raw", scaling=2)
        with rig.store.writer("s/raw") as writer:
            for i in range(40):
                hook = Once(AppendUncertain("lost"))
                if i % 3 == 1:
                    rig.catalog.before = hook  # before it landed
                elif i % 3 == 2:
                    rig.catalog.after = hook  # after it landed
                writer.write(b"%d" % i, key="a").result()
        assert bodies_of(rig.store, "s/raw") == [b"%d" % i for i in range(40)]
        assert sound(rig.store)


def test_what_stays_uncertain_is_reported_and_never_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "_RESOLVE", replace(committing._RESOLVE, pause_s_min=0.001))
    with Rig(tmp_path) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        writer.write(b"0").result()
        with monkeypatch.context() as patch:
            # It lands, its answer is lost, and then nobody can be asked.
            def unreachable() -> None:
                raise StoreUnavailable("the disk is away")

            rig.catalog.after = Once(AppendUncertain("lost"))
            patch.setattr(rig.catalog, "writing", unreachable)
            ack = writer.write(b"1")
            with pytest.raises(AppendUncertain):
                ack.result()
            ack = writer.write(b"refused")
            with pytest.raises(StoreUnavailable):
                ack.result()
        assert writer.write(b"2").result().offset == 2
        assert bodies_of(rig.store, "s/raw") == [b"0", b"1", b"2"]
        writer.close()
        assert sound(rig.store)
