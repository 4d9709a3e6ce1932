"""Several statements in one round trip on PostgreSQL: changes wait for the next question, and nothing else differs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from anabranch.catalog.port import Checkpointed
from anabranch.catalog.postgres import reading
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.errors import StoreUnavailable, StreamExists
from anabranch.model.append import Unit
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import Span
from anabranch.runtime.ports import Runtime
from anabranch.streams.manager import Streams
from anabranch.testing.contracts.samples import NOW, SEGMENT, info, new_stream, part
from tests.postgres_server import drop, fresh_url
from tests.waiting import PATIENCE_S, until_ended

A, B = StreamId(1), StreamId(2)
PIECE = Checkpointed("kind", "name", {"n": 1})


@pytest.fixture
def url() -> Iterator[str]:
    made = fresh_url()
    yield made
    drop(made)


@pytest.fixture
def catalog(url: str) -> Iterator[PostgresCatalog]:
    opened = PostgresCatalog(url, Runtime())
    new_stream(opened, A, "iot/a")
    new_stream(opened, B, "iot/b")
    yield opened
    opened.close()


def pieces(catalog: PostgresCatalog) -> list[Checkpointed]:
    with catalog.reading() as reading:
        return reading.pieces("kind")


@pytest.mark.parametrize("together", [True, False], ids=["libpq 14", "libpq 13"])
def test_a_change_is_there_for_the_next_question_and_at_the_end(
    catalog: PostgresCatalog, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_PIPELINES", together)
    with catalog.writing() as writing:
        writing.put_piece(PIECE)
        assert writing.piece("kind", "name") == PIECE
        writing.drop_piece("kind", "name")
        assert writing.pieces("kind") == []
        writing.put_piece(PIECE)
    assert pieces(catalog) == [PIECE]


def test_a_change_that_is_refused_when_it_is_sent_undoes_its_transaction(catalog: PostgresCatalog) -> None:
    def refuse(ask: bool) -> None:
        with catalog.writing() as writing:
            writing.put_piece(PIECE)
            writing.put_span(A, Span(SEGMENT, 9, LogId(99), 0, 1))  # there is no such log
            if ask:
                writing.scopes()

    for ask in (True, False):
        with pytest.raises(StoreUnavailable, match="foreign key"):
            refuse(ask)
        assert pieces(catalog) == []


def test_a_name_that_is_taken_is_told_at_once(catalog: PostgresCatalog) -> None:
    def make() -> None:
        with catalog.writing() as writing:
            writing.put_piece(PIECE)
            with pytest.raises(StreamExists):
                writing.insert_stream(info(A, "iot/other"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make()
    assert pieces(catalog) == []


def test_a_lock_that_is_refused_for_a_deadlock_is_asked_for_again_and_loses_no_change(
    catalog: PostgresCatalog, url: str
) -> None:
    base, _, schema = url.rpartition("schema=")
    with psycopg.connect(base.rstrip("?&")) as rival:
        rival.execute(f"set search_path to {schema}".encode())
        rival.execute("set deadlock_timeout = '1500ms'")  # a second for ours, which is refused before
        rival.execute("select id from logs where stream = 1 for update")
        holding = threading.Event()

        def cross() -> None:
            holding.wait(PATIENCE_S)
            with pytest.raises(psycopg.errors.DeadlockDetected):
                rival.execute("select id from logs where stream = 2 for update")
            rival.rollback()

        crossing = threading.Thread(target=cross)
        crossing.start()
        with catalog.writing() as writing:
            assert writing.view(B) is not None
            writing.put_piece(PIECE)
            holding.set()
            assert writing.view(A) is not None
            assert writing.pieces("kind") == [PIECE]
        until_ended(crossing)
    assert pieces(catalog) == [PIECE]


def test_a_scope_is_copied_in_few_round_trips(catalog: PostgresCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(catalog, Runtime(), cut_at=lambda *_: pytest.fail("no time"), changed=lambda: None)
    streams.create_scope("many")
    for number in range(20):
        streams.create(StreamName("many", str(number)))
    trips, flying = 0, False
    execute, pipeline = psycopg.Connection.execute, psycopg.Connection.pipeline

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal trips
        trips += not flying
        return execute(self, *arguments, **options)

    @contextmanager
    def together(self: Any) -> Iterator[None]:
        nonlocal trips, flying
        trips, flying = trips + 1, True
        with pipeline(self):
            yield
        flying = False

    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    monkeypatch.setattr(psycopg.Connection, "pipeline", together)
    assert len(streams.copy_scope("many", "copies")) == 20
    assert trips <= 20 * 6 + 20, trips


def test_what_is_about_one_stream_takes_four_round_trips(
    catalog: PostgresCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins and takes its locks in one, asks what it needs to know, and commits with all changes in one."""
    streams = Streams(catalog, Runtime(), cut_at=lambda *_: pytest.fail("no time"), changed=lambda: None)
    name = StreamName("iot", "a")
    with catalog.writing(name) as writing:
        (log,) = writing.logs([LogId(1)])
        writing.append(Unit((part(log, 9),)), now=NOW)
    mine = threading.get_ident()  # others listen and notify
    trips, flying = 0, False
    execute, pipeline = psycopg.Connection.execute, psycopg.Connection.pipeline

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal trips
        trips += threading.get_ident() == mine and not flying
        return execute(self, *arguments, **options)

    @contextmanager
    def together(self: Any) -> Iterator[None]:
        nonlocal trips, flying
        trips, flying = trips + 1, True
        with pipeline(self):
            yield
        flying = False

    cut = StreamCut.of(A, {SEGMENT: 4})
    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    monkeypatch.setattr(psycopg.Connection, "pipeline", together)
    streams.truncate(name, cut)
    assert trips <= 4, trips
    assert streams.head(name) == cut


def test_the_rows_of_the_outbox_are_read_by_the_transaction_that_writes_them(catalog: PostgresCatalog) -> None:
    with catalog.writing(A) as writing:
        writing.add_change(A, "first", {}, now=NOW)
        assert [change.kind for change in writing.changes(0, 10)][-1:] == ["first"]
        writing.add_change(A, "second", {}, now=NOW)
    with catalog.reading() as reading:
        assert [change.kind for change in reading.changes(0, 10)][-2:] == ["first", "second"]


def test_what_a_transaction_knows_of_its_stream_is_what_it_changed(catalog: PostgresCatalog) -> None:
    for on in (A, StreamName("iot", "a")):
        with catalog.writing(on) as writing:
            known = writing.stream(A)
            assert known is not None and writing.stream(StreamName("iot", "a")) == known
            changed = replace(known, version=known.version + 1)
            writing.update_stream(changed)
            assert writing.stream(A) == writing.stream(StreamName("iot", "a")) == changed
    with catalog.writing(A) as writing:
        writing.drop_stream(A)
        assert writing.stream(A) is None
