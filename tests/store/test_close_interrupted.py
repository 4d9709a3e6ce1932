"""What is closed again behind Ctrl-C, wherever that struck: nothing is lost, and nothing stays open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, Closed, StreamSealed
from tests.interrupted import ctrl_c_everywhere


@pytest.fixture
def store() -> Iterator[ab.Store]:
    with ab.connect("memory://") as opened:
        opened.scopes.create("s")
        opened.streams.create("s/raw")
        opened.streams.create("s/numbers", schema=pa.schema([("n", pa.int64())]))
        yield opened


def test_a_writer_that_is_closed_again_has_written_all_it_accepted(store: ab.Store) -> None:
    for number, press in enumerate(ctrl_c_everywhere()):
        writer = store.writer("s/raw")
        acks = [writer.write(b"%d" % number) for _ in range(3)]
        with suppress(KeyboardInterrupt):
            press(writer.close)
        writer.close()
        assert all(ack.done() for ack in acks)
        assert writer not in store._open
    with store.reader("s/raw") as reader:
        assert [event.body for event in reader] == [b"%d" % n for n in range(number + 1) for _ in range(3)]


@pytest.mark.slow
def test_what_a_writer_was_refused_is_reported_by_one_close_or_the_next(store: ab.Store) -> None:
    for number, press in enumerate(ctrl_c_everywhere()):
        store.streams.create(f"s/sealed-{number}")
        writer = store.writer(f"s/sealed-{number}")
        writer.write(b"in time").result()
        store.streams.seal(f"s/sealed-{number}")
        writer.write(b"late")
        told: list[BaseException | None] = []
        for close in (lambda writer=writer, press=press: press(writer.close), writer.close):
            try:
                close()
            except (KeyboardInterrupt, AnabranchError) as exc:
                told += [exc, exc.__context__]
        assert any(isinstance(each, StreamSealed) for each in told), number
        assert writer not in store._open


def test_a_writer_that_notes_times_is_waited_for_no_more_once_it_is_closed_again(store: ab.Store) -> None:
    for number, press in enumerate(ctrl_c_everywhere(stride=11)):
        store.streams.create(f"s/timed-{number}")
        writer = store.writer(f"s/timed-{number}")
        writer.write(b"x", time=10)
        writer.note_time(10)
        with suppress(KeyboardInterrupt):
            press(writer.close)
        writer.close()
        assert store.watermarks.status(f"s/timed-{number}").writers == ()


def test_a_reader_that_is_closed_again_is_closed(store: ab.Store) -> None:
    for press in ctrl_c_everywhere():
        reader = store.reader("s/raw", follow=True)
        with suppress(KeyboardInterrupt):
            press(reader.close)
        reader.close()
        assert reader not in store._open


def test_a_group_reader_that_is_closed_again_has_left_its_group(store: ab.Store) -> None:
    with store.writer("s/raw") as writer:
        writer.write(b"x")
    for number, press in enumerate(ctrl_c_everywhere(stride=3)):
        group = store.groups.open(f"s/group-{number}", streams=["s/raw"])
        reader = group.reader("r")
        assert reader.read() is not None
        with suppress(KeyboardInterrupt):
            press(reader.close)
        reader.close()
        assert reader not in store._open
        assert group.readers == []
        assert group.unread().events == 0


def test_a_group_reader_that_an_error_left_forgoes_its_last_batch_though_it_is_closed_again(store: ab.Store) -> None:
    with store.writer("s/raw") as writer:
        writer.write(b"x")
    for number, press in enumerate(ctrl_c_everywhere(stride=17)):
        group = store.groups.open(f"s/group-{number}", streams=["s/raw"])
        reader = group.reader("r")
        assert reader.read() is not None
        with suppress(KeyboardInterrupt):
            press(reader.abandon)
        reader.abandon()
        reader.close()
        assert group.readers == []
        assert group.unread().events == 1


def test_a_transaction_that_is_committed_again_is_there_once(store: ab.Store) -> None:
    for number, press in enumerate(ctrl_c_everywhere(stride=3)):
        transaction = store.transaction()
        writer = transaction.writer("s/numbers")
        writer.write({"n": number})
        if number % 2:
            with suppress(KeyboardInterrupt):
                press(transaction.flush)
            transaction.commit()
        else:
            with suppress(KeyboardInterrupt):
                press(transaction.commit)
            transaction.commit()
    with store.reader("s/numbers") as reader:
        assert [event.body["n"] for event in reader] == list(range(number + 1))


def test_an_ephemeral_stream_is_gone_once_its_holder_has_left_it_again(store: ab.Store) -> None:
    for press in ctrl_c_everywhere():
        held = store.ephemeral.create("s/tmp")
        with suppress(KeyboardInterrupt):
            press(held.leave)
        held.leave()
        assert not store.streams.exists("s/tmp")


def test_a_store_that_is_closed_again_has_committed_all_and_ended_all() -> None:
    for press in ctrl_c_everywhere(stride=3):
        store = ab.connect("memory://")
        store.scopes.create("s")
        store.streams.create("s/raw")
        ack = store.writer("s/raw").write(b"x")
        with suppress(KeyboardInterrupt):
            press(store.close)
        store.close()
        assert ack.done()
        with pytest.raises(Closed), store.catalog.reading():
            pass
