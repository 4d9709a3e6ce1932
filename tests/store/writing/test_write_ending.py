"""How writing ends: flush, close, a store closed under others, the interpreter's exit, and Ctrl-C at any moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import AnabranchError, Closed, DiskFull, SchemaMismatch, StreamSealed
from anabranch.log.commit import RoutedBatch
from anabranch.store import Store
from tests.store.helpers import Once, Rig, bodies_of, sound
from tests.waiting import PATIENCE_S, until, until_ended


def opened(folder: Path, **options: Any) -> Store:
    store = ab.connect(folder, **options, create=True)
    store.scopes.create("s", exist_ok=True)
    store.streams.create("s/raw", scaling=2, exist_ok=True)
    return store


def reopened(folder: Path) -> list[Any]:
    """What a new store finds, after a check."""
    with ab.connect(folder, create=True) as store:
        assert sound(store)
        return bodies_of(store, "s/raw")


# flush and close


def test_who_waits_while_the_store_closes_gets_the_answer_of_what_is_just_being_gathered(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.store.streams.create("s/raw")
        writer, appender = rig.store.writer("s/raw"), rig.store._appender
        gathering, go_on, take = threading.Event(), threading.Event(), writer._queue.take

        def taken(bytes_max: int) -> list[RoutedBatch]:
            gathering.set()
            assert go_on.wait(PATIENCE_S)
            return take(bytes_max)

        writer._queue.take = taken  # type: ignore[method-assign]
        ack = writer.write(b"0")
        assert gathering.wait(PATIENCE_S)
        closing = threading.Thread(target=appender.close)
        closing.start()
        until(lambda: appender._closed)
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(ack.result()))
        waiting.start()
        waiting.join(0.05)
        go_on.set()
        until_ended(closing, waiting)
        assert [pointer.offset for pointer in found] == [0]


def test_flush_returns_once_everything_accepted_is_durable(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        writer = store.writer("s/raw")
        for i in range(100):
            acks: list[ab.Ack | ab.BatchAck] = [
                writer.write(b"x", key=str(i)),
                writer.write_batch(pa.table({"payload": [b"y"]})),
            ]
            if i % 10 == 0:
                writer.flush()
                assert all(ack.done() for ack in acks)
        writer.flush()
        assert len(bodies_of(store, "s/raw")) == 200


def test_flush_waits_for_events_that_another_thread_is_still_handing_over(tmp_path: Path) -> None:
    """The first event of a chunk announces it; who adds the second one must not miss it in between."""
    with opened(tmp_path) as store:
        writer = store.writer("s/raw")
        held, go_on = threading.Event(), threading.Event()
        offer = writer._appender.offer

        def slow_offer(source: Any) -> None:
            held.set()
            assert go_on.wait(PATIENCE_S)
            offer(source)

        writer._appender.offer = slow_offer  # type: ignore[method-assign]
        first = threading.Thread(target=lambda: writer.write(b"first", key="a"))
        first.start()
        assert held.wait(PATIENCE_S)
        writer._appender.offer = offer  # type: ignore[method-assign]
        ack = writer.write(b"second", key="a")
        writer.flush()
        assert ack.done()
        go_on.set()
        until_ended(first)
        assert bodies_of(store, "s/raw") == [b"first", b"second"]


def test_flush_raises_the_first_refusal_once(tmp_path: Path) -> None:
    with Rig(tmp_path, inline_bytes_max=0) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        rig.blobs.before_put = Once(DiskFull("no space"))
        writer.write(b"lost")
        with pytest.raises(DiskFull):
            writer.flush()
        writer.flush()
        writer.write(b"kept")
        writer.close()
        assert bodies_of(rig.store, "s/raw") == [b"kept"]


def test_close_raises_no_refusal_that_an_acknowledgement_has_raised(tmp_path: Path) -> None:
    with Rig(tmp_path, inline_bytes_max=0) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        for _ in range(limits.REFUSALS_KEPT + 2):
            rig.blobs.before_put = Once(DiskFull("no space"))
            with pytest.raises(DiskFull):
                writer.write(b"lost").result()
        rig.blobs.before_put = Once(DiskFull("no space"))
        batch = writer.write_batch(pa.table({"payload": [b"lost", b"too"]}))
        for _ in range(2):
            with pytest.raises(DiskFull):
                batch.result()
        writer.close()
        assert bodies_of(rig.store, "s/raw") == []


def test_close_raises_a_refusal_that_no_one_has_seen_behind_one_that_was(tmp_path: Path) -> None:
    with Rig(tmp_path, inline_bytes_max=0) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        acks = []
        for reason in ("no space", "still no space"):
            rig.blobs.before_put = Once(DiskFull(reason))
            acks.append(writer.write(b"lost"))
            until(acks[-1].done)
        with pytest.raises(DiskFull, match=r"^no space"):
            acks[0].result()
        with pytest.raises(DiskFull, match="still no space"):
            writer.close()


def test_more_refusals_than_are_kept_are_raised_by_close(tmp_path: Path) -> None:
    with Rig(tmp_path, inline_bytes_max=0) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        acks = []
        for _ in range(limits.REFUSALS_KEPT + 1):
            rig.blobs.before_put = Once(DiskFull("no space"))
            acks.append(writer.write(b"lost"))
            until(acks[-1].done)
        for ack in acks[:-1]:
            with pytest.raises(DiskFull):
                ack.result()
        with pytest.raises(DiskFull):
            writer.close()


def test_close_raises_the_refusal_of_each_row_that_fits_no_column(store: Store) -> None:
    store.streams.create("s/typed", schema=pa.schema([("a", pa.int8())]))
    writer = store.writer("s/typed")
    seen, unseen = writer.write({"a": 300}), writer.write({"a": 301})
    with pytest.raises(SchemaMismatch, match="300"):
        seen.result()
    until(unseen.done)
    with pytest.raises(SchemaMismatch, match="301"):
        writer.close()


def test_close_raises_the_refusal_of_accepted_events_after_a_later_write_was_refused_for_the_same_cause(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        writer = store.writer("s/raw")
        store.streams.seal("s/raw")
        until(writer.write(b"accepted").done)
        with pytest.raises(StreamSealed):
            writer.write(b"not accepted")
        with pytest.raises(StreamSealed):
            writer.close()


def test_a_closed_store_raises_no_refusal_that_was_raised(tmp_path: Path) -> None:
    store = opened(tmp_path)
    writer = store.writer("s/raw")
    store.streams.seal("s/raw")
    with pytest.raises(StreamSealed):
        writer.write(b"late").result()
    with pytest.raises(StreamSealed):
        writer.write(b"later")
    store.close()


def test_a_second_close_is_harmless_and_writing_after_it_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        writer = store.writer("s/raw")
        ack = writer.write(b"x")
        writer.close()
        assert ack.done()
        writer.close()
        for late in (
            lambda: writer.write(b"late"),
            lambda: writer.write(b"late", expected=1),
            lambda: writer.write_batch(pa.table({"payload": [b"late"]})),
            lambda: writer.write_batch(pa.table({"payload": pa.array([], pa.binary())})),
        ):
            with pytest.raises(Closed, match="writer"):
                late()
    store.close()
    for use in (
        lambda: store.writer("s/raw"),
        lambda: store.reader("s/raw"),
        lambda: store.streams.get("s/raw"),
        lambda: list(store.check()),
    ):
        with pytest.raises(Closed, match="store"):
            use()
    assert reopened(tmp_path) == [b"x"]


def _tasks(others: set[threading.Thread]) -> list[str]:
    """The store's threads that live."""
    return [each.name for each in set(threading.enumerate()) - others if each.name.startswith("anabranch")]


def test_a_close_that_was_broken_off_is_gone_on_with_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = set(threading.enumerate())  # of stores that tests before this one left to the exit
    store = opened(tmp_path)
    acks = [store.writer("s/raw").write(b"x")]
    real = store.jobs.close

    def interrupted() -> None:
        monkeypatch.setattr(store.jobs, "close", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(store.jobs, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    with pytest.raises(Closed, match="store"):
        store.writer("s/raw")
    assert _tasks(others)
    store.close()
    until(lambda: not _tasks(others))
    assert acks[0].done()
    assert reopened(tmp_path) == [b"x"]


def test_close_reports_what_was_refused_and_then_is_closed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        writer = store.writer("s/raw")
        writer.write(b"x")
        writer.flush()
        store.streams.seal("s/raw")
        writer.write(b"late")
        with pytest.raises(StreamSealed):
            writer.close()
        writer.close()
        with pytest.raises(Closed):
            writer.write(b"later")


def test_an_error_of_the_callers_block_is_not_hidden_by_one_of_close(tmp_path: Path) -> None:
    class Own(Exception):
        pass

    def work(store: Store) -> None:
        with store.writer("s/raw") as writer:
            store.streams.seal("s/raw")
            writer.write(b"late")
            raise Own

    with opened(tmp_path) as store, pytest.raises(Own):
        work(store)


def test_closing_the_store_commits_what_its_writers_accepted_and_reports_what_was_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.streams.create("s/sealed")
    good, bad = store.writer("s/raw"), store.writer("s/sealed")
    acks = [good.write(b"%d" % i, key="a") for i in range(10)]
    store.streams.seal("s/sealed")
    bad.write(b"late")
    with pytest.raises(StreamSealed):
        store.close()
    assert all(ack.done() for ack in acks)
    store.close()
    assert reopened(tmp_path) == [b"%d" % i for i in range(10)]


def test_a_store_closed_under_writers_and_readers_ends_them_all(tmp_path: Path) -> None:
    for round_ in range(3):
        folder = tmp_path / str(round_)
        store = opened(folder)
        acknowledged: list[bytes] = []
        ends: list[object] = []
        busy = threading.Barrier(7)

        def write(
            name: int, store: Store, acknowledged: list[bytes], ends: list[object], busy: threading.Barrier
        ) -> None:
            writer = store.writer("s/raw")
            i = 0
            try:
                busy.wait()
                while True:
                    body = b"%d-%d" % (name, i)
                    ack = writer.write(body, key=str(i % 3))
                    if i % 5 == 0:
                        ack.result()
                        acknowledged.append(body)
                    i += 1
            except Closed as exc:
                ends.append(exc)

        def follow(store: Store, ends: list[object], busy: threading.Barrier) -> None:
            try:
                with store.reader("s/raw", follow=True) as reader:
                    busy.wait()
                    for _ in reader:
                        pass
                ends.append("the end")
            except Closed as exc:
                ends.append(exc)

        threads = [threading.Thread(target=write, args=(n, store, acknowledged, ends, busy)) for n in range(4)] + [
            threading.Thread(target=follow, args=(store, ends, busy)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        busy.wait()
        until(lambda acknowledged=acknowledged: len(acknowledged) >= 30)  # type: ignore[misc]
        store.close()
        until_ended(*threads)
        assert len(ends) == 6
        found = reopened(folder)
        assert set(acknowledged) <= set(found) and len(set(found)) == len(found)


def test_a_batch_that_was_begun_is_accepted_whole_though_the_writer_closes_meanwhile(tmp_path: Path) -> None:
    with Rig(tmp_path, commit_bytes_max=1_000, pending_bytes_max=2_000, pipeline_bytes_min=1) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        begun, go_on = threading.Event(), threading.Event()

        def hold(_: object) -> None:
            begun.set()
            assert go_on.wait(PATIENCE_S)

        rig.catalog.before = hold
        acks: list[ab.BatchAck] = []
        table = pa.table({"payload": [bytes(100)] * 100})
        thread = threading.Thread(target=lambda: acks.append(writer.write_batch(table)))
        thread.start()
        assert begun.wait(PATIENCE_S)
        closing = threading.Thread(target=writer.close)
        closing.start()
        until(lambda: writer._closed)
        go_on.set()
        until_ended(thread, closing)
        assert sum(part.stop - part.start for part in acks[0].result()) == 100


def test_a_writer_opened_while_the_store_closes_is_closed_too(tmp_path: Path) -> None:
    store = opened(tmp_path)
    get = store.streams.get

    def slow_get(name: Any) -> Any:
        info = get(name)
        store.close()
        return info

    store.streams.get = slow_get  # type: ignore[method-assign]
    with pytest.raises(Closed):
        store.writer("s/raw")


# the interpreter's exit

EXITS = {
    "end of the script": "",
    "sys.exit": "sys.exit(0)",
    "an exception": "raise SystemExit(0)",
    "a thread that writes on": """
        def on():
            for i in range(50, 100):
                acks.append(writer.write(b"%d" % i, key="a"))
        import threading
        threading.Thread(target=on).start()
    """,
}


@pytest.mark.process
@pytest.mark.parametrize("way", EXITS)
def test_the_interpreters_exit_commits_what_was_accepted(tmp_path: Path, way: str) -> None:
    opened(tmp_path).close()
    code = f"""
        import sys
        import anabranch as ab
        store = ab.connect({str(tmp_path)!r}, create=True)
        writer = store.writer("s/raw")
        acks = [writer.write(b"%d" % i, key="a") for i in range(50)]
        {textwrap.dedent(EXITS[way]).strip().replace(chr(10), chr(10) + "        ")}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    count = 100 if way == "a thread that writes on" else 50
    assert reopened(tmp_path) == [b"%d" % i for i in range(count)]


# Ctrl-C


def nothing(*_: object) -> None:
    pass


class Pressed:
    """Ctrl-C, once, if this is the thread that would hear of it."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, *_: object) -> None:
        if not self.done and threading.current_thread() is threading.main_thread():
            self.done = True
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("where", ["blobs", "before the commit", "after the commit"])
def test_ctrl_c_in_the_leading_thread_loses_nothing_and_blocks_nobody(tmp_path: Path, where: str) -> None:
    with Rig(tmp_path, inline_bytes_max=0) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        writer.write(b"0").result()
        interrupted = 0
        for i in range(1, 30):
            pressed = Pressed()
            rig.blobs.before_put = pressed if where == "blobs" else nothing
            rig.catalog.before = pressed if where == "before the commit" else nothing
            rig.catalog.after = pressed if where == "after the commit" else nothing
            ack = writer.write(b"%d" % i)
            try:
                ack.result()
            except KeyboardInterrupt:
                interrupted += 1
            assert ack.result().offset == i
        assert interrupted
        writer.close()
        assert bodies_of(rig.store, "s/raw") == [b"%d" % i for i in range(30)]
        assert sound(rig.store)


def test_ctrl_c_while_a_batch_waits_for_room_is_reported_and_close_ends(tmp_path: Path) -> None:
    with Rig(tmp_path, commit_bytes_max=1_000, pending_bytes_max=2_000, pipeline_bytes_min=1) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        waiting = rig.store._appender.wait

        def pressed(*arguments: Any) -> bool:
            raise KeyboardInterrupt

        rig.store._appender.wait = pressed  # type: ignore[assignment, method-assign]
        with pytest.raises(KeyboardInterrupt):
            writer.write_batch(pa.table({"payload": [bytes(100)] * 100}))
        rig.store._appender.wait = waiting  # type: ignore[method-assign]
        with pytest.raises(AnabranchError, match="interrupted"):
            writer.close()
        found = len(bodies_of(rig.store, "s/raw"))
        assert 0 < found < 100


@pytest.mark.parametrize("rows", [5, 100], ids=["one commit", "many commits"])
def test_ctrl_c_where_a_batch_has_just_been_accepted_lets_close_end(tmp_path: Path, rows: int) -> None:
    with Rig(tmp_path, commit_bytes_max=1_000) as rig:
        rig.store.streams.create("s/raw")
        writer = rig.store.writer("s/raw")
        enqueue, pressed = writer._queue.enqueue, Pressed()

        def enqueued(*arguments: Any) -> None:
            enqueue(*arguments)
            pressed()

        writer._queue.enqueue = enqueued  # type: ignore[assignment, method-assign]
        with pytest.raises(KeyboardInterrupt):
            writer.write_batch(pa.table({"payload": [bytes(100)] * rows}))
        told: list[AnabranchError] = []

        def close() -> None:
            try:
                writer.close()
            except AnabranchError as exc:
                told.append(exc)

        closing = threading.Thread(target=close, daemon=True)
        closing.start()
        until_ended(closing)
        assert ["interrupted" in str(each) for each in told] == ([] if rows == 5 else [True])
        found = len(bodies_of(rig.store, "s/raw"))
        assert found == 5 if rows == 5 else 0 < found < rows


def test_ctrl_c_between_the_columns_of_an_event_leaves_its_chunk_whole(tmp_path: Path) -> None:
    class Interrupting(list[Any]):
        def append(self, value: Any) -> None:
            raise KeyboardInterrupt

    with opened(tmp_path) as store:
        writer = store.writer("s/raw")
        writer._appender.offer = lambda source: None  # type: ignore[method-assign]
        writer.write(b"first", key="a")
        keys = writer._buffer.chunk.keys  # type: ignore[union-attr]
        writer._buffer.chunk.keys = Interrupting(keys)  # type: ignore[union-attr]
        with pytest.raises(KeyboardInterrupt):
            writer.write(b"never", key="b")
        writer._buffer.chunk.keys = keys  # type: ignore[union-attr]
        writer.write(b"second", key="c", time=5)
        writer.close()
        with store.reader("s/raw") as reader:
            assert sorted((event.key, event.body) for event in reader) == [("a", b"first"), ("c", b"second")]
