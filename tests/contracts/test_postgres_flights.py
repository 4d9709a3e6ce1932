"""Several statements in one round trip on PostgreSQL: changes wait for the next question, and nothing else differs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NoReturn

import psycopg
import pytest

import anabranch as ab
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.postgres.address import DatabaseAddress
from anabranch.catalog.postgres.connection import connect
from anabranch.catalog.postgres.pipeline import PipelineConnection, StatementCall, StatementResult
from anabranch.catalog.state.kind import State
from anabranch.catalog.state.transaction import PUBLISHED, PublishedSeries
from anabranch.errors import StoreUnavailable, StreamExists
from anabranch.model.append import Unit
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import Span
from anabranch.runtime.ports import Runtime
from anabranch.shared_state.synchronizer import JsonCodec, StateSynchronizer
from anabranch.streams.algebra.cuts import Cuts
from bench.features import changes_of, scopes_of, streams_of
from tests.contracts.catalog.samples import NOW, SEGMENT, info, new_stream, part
from tests.waiting import PATIENCE_S, until, until_ended

A, B = StreamId(1), StreamId(2)
NUMBER = PublishedSeries(1)
STATE = State("name", NUMBER)


@pytest.fixture
def catalog(url: str) -> Iterator[PostgresCatalog]:
    opened = PostgresCatalog(url, Runtime())
    new_stream(opened, A, "iot/a")
    new_stream(opened, B, "iot/b")
    yield opened
    opened.close()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The round trips of this thread from now on: each as the names of its statements."""
    trips: list[list[str]] = []
    mine, fly = threading.get_ident(), PipelineConnection.run_statements  # others listen and notify

    def noted(self: PipelineConnection, asked: Sequence[StatementCall]) -> list[StatementResult]:
        if threading.get_ident() == mine:
            trips.append([name for name, _ in asked])
        return fly(self, asked)

    monkeypatch.setattr(PipelineConnection, "run_statements", noted)
    return trips


def states(catalog: PostgresCatalog) -> list[State[str, PublishedSeries]]:
    with catalog.reading() as reading:
        return reading.states(PUBLISHED)


def test_a_change_is_there_for_the_next_question_and_at_the_end(catalog: PostgresCatalog) -> None:
    with catalog.writing() as writing:
        writing.put_state(PUBLISHED, "name", NUMBER)
        assert writing.state(PUBLISHED, "name") == NUMBER
        writing.drop_state(PUBLISHED, "name")
        assert writing.states(PUBLISHED) == []
        writing.put_state(PUBLISHED, "name", NUMBER)
    assert states(catalog) == [STATE]


def test_a_change_that_is_refused_when_it_is_sent_undoes_its_transaction(catalog: PostgresCatalog) -> None:
    def refuse(ask: bool) -> None:
        with catalog.writing() as writing:
            writing.put_state(PUBLISHED, "name", NUMBER)
            writing.put_span(A, Span(SEGMENT, 9, LogId(99), 0, 1))  # there is no such log
            if ask:
                writing.scopes()

    for ask in (True, False):
        with pytest.raises(StoreUnavailable, match="foreign key"):
            refuse(ask)
        assert states(catalog) == []


def test_a_name_that_is_taken_is_reported_at_once(catalog: PostgresCatalog) -> None:
    def make() -> None:
        with catalog.writing() as writing:
            writing.put_state(PUBLISHED, "name", NUMBER)
            with pytest.raises(StreamExists):
                writing.insert_stream(info(A, "iot/other"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make()
    assert states(catalog) == []


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
            writing.put_state(PUBLISHED, "name", NUMBER)
            holding.set()
            assert writing.view(A) is not None
            assert writing.states(PUBLISHED) == [STATE]
        until_ended(crossing)
    assert states(catalog) == [STATE]


def test_a_scope_is_copied_in_few_round_trips(catalog: PostgresCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = streams_of(catalog)
    scopes_of(catalog).create("many")
    for number in range(20):
        streams.create(StreamName("many", str(number)))
    trips = counted(monkeypatch)
    assert len(scopes_of(catalog).copy("many", "copies")) == 20
    assert len(trips) <= 20 * 6 + 20, len(trips)


def test_what_is_about_one_stream_takes_four_round_trips(
    catalog: PostgresCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins and takes its locks in one, asks what it needs to know, and commits with all changes in one."""
    streams = streams_of(catalog)
    name = StreamName("iot", "a")
    with catalog.writing(name) as writing:
        (log,) = writing.logs([LogId(1)])
        writing.append(Unit((part(log, 9),)), now=NOW)
    cut = StreamCut.of(A, {SEGMENT: 4})
    trips = counted(monkeypatch)
    streams.truncate(name, cut)
    assert len(trips) <= 4, trips

    def no_time(*_: object) -> NoReturn:
        pytest.fail("no time")

    assert Cuts(changes_of(catalog), no_time, no_time).head(name) == cut


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


@pytest.fixture
def database(catalog: PostgresCatalog, url: str) -> Iterator[PipelineConnection]:
    with closing(connect(DatabaseAddress.parse(url), lock_s=PATIENCE_S)) as opened:
        yield opened


def test_nothing_flies_behind_what_fails_and_the_connection_goes_on(database: PipelineConnection) -> None:
    again = ("insert_stream", (int(A), "iot", "a", 1, "{}", 0, False, 1, 0, 1))
    for _ in range(2):
        with pytest.raises(psycopg.errors.UniqueViolation):
            database.run_statements(
                [("begin_writing", ()), ("put_scope", ("new", "{}", 0)), again, ("scope", ("new",))]
            )
        database.run_statements([("rollback", ())])
        # What was to be prepared behind the failure was not.
        assert database.run_statements([("scope", ("new",)), ("scope", ("iot",))])[0].rows == []


def test_a_value_that_cannot_be_sent_stops_all_of_its_flight(database: PipelineConnection) -> None:
    with pytest.raises(psycopg.DataError):
        database.run_statements([("put_scope", ("new", "{}", 0)), ("scope", ("\0",))])
    assert database.run_statements([("scope", ("new",))])[0].rows == []


def test_statements_stay_prepared_when_a_transaction_is_undone(database: PipelineConnection) -> None:
    for _ in range(2):
        database.run_statements([("begin_writing", ()), ("scope", ("iot",)), ("scope", ("other",)), ("rollback", ())])
    said = database.execute("select statement from pg_prepared_statements").fetchall()
    assert sum("from scopes where name" in text for (text,) in said) == 1


def test_a_flight_larger_than_what_the_sockets_hold_lands(database: PipelineConnection) -> None:
    values = [str(number) * (1 << 20) for number in range(8)]
    asked: list[StatementCall] = []
    for number, value in enumerate(values):
        asked += [("put_state", ("kind", str(number), None, value)), ("state", ("kind", str(number)))]
    assert [answer.rows[0][3] for answer in database.run_statements(asked)[1::2]] == values


def test_an_interrupted_flight_leaves_no_connection_with_half_an_answer(database: PipelineConnection, url: str) -> None:
    with closing(connect(DatabaseAddress.parse(url), lock_s=PATIENCE_S)) as rival:
        rival.run_statements([("begin_writing", ()), ("lock", ("writing",))])

        def interrupt() -> None:
            waiting = "select 1 from pg_locks where locktype = 'advisory' and not granted and pid = %s"
            until(lambda: rival.execute(waiting, (database.info.backend_pid,)).fetchone() is not None)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            database.run_statements([("begin_writing", ()), ("lock", ("writing",)), ("scopes", ())])
        until_ended(interrupting)
    assert database.closed


def test_streams_are_copied_appended_and_stitched_in_four_round_trips(
    catalog: PostgresCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin in one, find names in one and what these lead to in another, and commit with all changes in one."""
    streams = streams_of(catalog)
    trips = counted(monkeypatch)
    for operation in (
        lambda: streams.copy("iot/a", "iot/copy"),
        lambda: streams.append("iot/a", "iot/b"),
        lambda: streams.append("iot/copy", "iot/copy"),
        lambda: streams.stitch(["iot/a", "iot/b", "iot/copy", "iot/a"], into="iot/stitched"),
    ):
        trips.clear()
        operation()
        assert len(trips) <= 4, trips


def test_an_update_in_its_turn_takes_two_round_trips(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for its turn and reads the value in one, and appends and commits in one: all that is behind the lock."""
    with ab.connect(url, blobs="memory://", create=True) as store:
        store.scopes.create("s")
        one, two = (store.shared.synchronizer("s/_n", initial=0) for _ in range(2))
        for each in (one, two, one, two):
            each.update(lambda n: n + 1)
        trips = counted(monkeypatch)
        assert one.update(lambda n: n + 1) == 5
        assert len(trips) == 2, trips
        telling = StateSynchronizer(
            store.shared.revisioned(one.stream.name),
            Runtime(),
            JsonCodec(),
            changes_of=lambda before, after: [("counted", {"to": after})],
        )
        assert one.update(lambda n: n + 1) == 6
        telling._contended = True
        trips.clear()
        assert telling.update(lambda n: n + 1) == 7
        assert len(trips) == 2, trips


def test_what_was_found_before_a_change_is_looked_for_again_behind_it(catalog: PostgresCatalog) -> None:
    with catalog.writing() as writing:
        name, other = StreamName("iot", "a"), StreamName("iot", "new")
        writing.prefetch(scopes=["iot"], streams=[name, other, B], states=[(PUBLISHED, "name")], logs_of=[A])
        known = writing.stream(name)
        assert known is not None and writing.stream(other) is None and writing.state(PUBLISHED, "name") is None
        writing.put_state(PUBLISHED, "name", NUMBER)
        assert writing.state(PUBLISHED, "name") == NUMBER
        writing.drop_state(PUBLISHED, "name")
        assert writing.state(PUBLISHED, "name") is None
        writing.update_stream(renamed := replace(known, name=other, version=known.version + 1))
        assert writing.stream(other) == writing.stream(A) == renamed and writing.stream(name) is None
        writing.insert_stream(made := info(StreamId(3), "iot/a"))
        assert writing.stream(name) == made


def test_a_name_that_was_free_is_taken_by_the_transaction_itself(catalog: PostgresCatalog) -> None:
    def make() -> None:
        with catalog.writing() as writing:
            assert writing.stream(StreamName("iot", "new")) is None
            writing.insert_stream(info(StreamId(3), "iot/new"))
            with pytest.raises(StreamExists):
                writing.insert_stream(info(StreamId(4), "iot/new"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make()
