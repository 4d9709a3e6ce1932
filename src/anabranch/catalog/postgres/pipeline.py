"""A connection that sends several named statements in one round trip (libpq's pipeline mode).

The driver's own pipeline waits for the socket before and after each statement, which takes four to five times the
processor time. So this module calls libpq through the driver, and prepares statements itself: each once per connection,
and a rollback does not drop them.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import abc, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import _WaitTimeout, error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq.abc import PGconn, PGresult

from anabranch import limits
from anabranch.catalog.postgres.clock import ServerClock
from anabranch.catalog.queries import load
from anabranch.catalog.rows import Row

SQL = load("anabranch.catalog.postgres")

StatementCall: TypeAlias = tuple[str, Any]  # a statement's name, and its values by position or by name

_PLACEHOLDER: Final = re.compile(r"%(?:\((\w+)\))?([sb])")
_FORMATS: Final = {"s": PyFormat.AUTO, "b": PyFormat.BINARY}
_DONE: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


_T = TypeVar("_T")
_TICK_S: Final = 0.1  # how often a wait checks for signals, as in the driver


class StatementResult(NamedTuple):
    """The result of a statement: its rows, how many it returned or changed, and the server's command tag."""

    rows: list[Row]
    affected: int
    done: str


class PipelineConnection(psycopg.Connection[tuple[Any, ...]]):
    """The driver's connection, with `run_statements`. For one thread at a time.

    If the server does not answer within `answer_s` seconds, `timed_out` is set, psycopg.OperationalError is raised and
    the connection is closed, because a late answer would be mistaken for the next statement's."""

    answer_s: float = limits.CATALOG_ANSWER_S
    timed_out: bool = False
    server_clock: ServerClock | None = None  # gets a reading along with an answer when one is due

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._values = Transformer(self)  # caches how each type of value is converted
        self._numbers = count()
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}  # prepared statements, by name and types of values

    def wait(self, gen: abc.PQGen[_T], interval: float = _TICK_S, timeout: float | None = None) -> _T:
        """As in the driver, but always with a time-out. Every statement and every commit waits here."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.answer_s)
        except _WaitTimeout:
            self.timed_out = True
            self.close()
            raise psycopg.OperationalError(f"the server did not answer within {self.answer_s:g} s") from None

    @contextmanager
    def background(self, answer_s: float) -> Iterator[None]:
        """Allow the server at least `answer_s` seconds for each answer in this context."""
        before, self.answer_s = self.answer_s, max(answer_s, self.answer_s)
        try:
            yield
        finally:
            self.answer_s = before

    def run_statements(self, calls: Sequence[StatementCall]) -> list[StatementResult]:
        """Run statements of `SQL`, in order and in one round trip. Returns one result per statement. If one fails,
        raises its psycopg.Error, and those after it do not run. Any other interruption closes the connection."""
        clock = self.server_clock
        # The clock is not read behind a commit: an error of that statement would say that nothing was changed.
        if clock is None or not clock.due or (calls and calls[-1][0] == "commit"):
            return self._run(calls)
        *answers, read = self._run([*calls, ("clock", ())])
        clock.observe(read.rows[0][0])
        return answers

    def _run(self, calls: Sequence[StatementCall]) -> list[StatementResult]:
        values = self._values
        bound = [_bind(values, *each) for each in calls]
        self.pgconn.enter_pipeline_mode()
        try:
            sent = self._send(bound)
            found = self.wait(_results(self.pgconn))
            self.pgconn.exit_pipeline_mode()
        except BaseException:
            self.close()  # unread answers would be mistaken for the next statements' answers
            raise
        for number, result in enumerate(found):
            if result.status not in _DONE:
                for each in sent[number:]:
                    if each is not None:
                        del self._names[each]
                raise error_from_result(result, encoding=self.info.encoding)
        return [_answer(values, result) for each, result in zip(sent, found, strict=True) if each is None]

    def _send(self, bound: Sequence[_Bound]) -> list[tuple[str, tuple[int, ...]] | None]:
        """Put statements into libpq's buffer. Returns, for each result to come, the key of the statement that it
        prepares, or None if it is the answer to a statement."""
        sent: list[tuple[str, tuple[int, ...]] | None] = []
        for each in bound:
            key = (each.name, each.types)
            name = self._names.get(key)
            if name is None:
                # Prepared in its place among the others: a transaction that begins in this round trip must begin first.
                name = self._names[key] = b"anabranch_%d" % next(self._numbers)
                self.pgconn.send_prepare(name, _statement(each.name).text, each.types)
                sent.append(key)
            self.pgconn.send_query_prepared(name, each.values, each.formats, pq.Format.BINARY)
            sent.append(None)
        self.pgconn.pipeline_sync()
        return sent


class _Statement(NamedTuple):
    """A statement in the server's syntax, and its parameters in order: their names, if they have any, and formats."""

    text: bytes
    names: tuple[str, ...] | None
    formats: list[PyFormat]


class _Bound(NamedTuple):
    """A named statement, and its values converted for the server."""

    name: str
    values: Sequence[Any]
    types: tuple[int, ...]
    formats: Sequence[pq.Format]


@cache
def _statement(name: str) -> _Statement:
    found = _PLACEHOLDER.findall(SQL[name])
    named = any(each for each, _ in found)
    # A name that occurs twice is one parameter.
    keys = dict.fromkeys(found) if named else dict.fromkeys((str(n), form) for n, (_, form) in enumerate(found))
    numbers = {key: number for number, key in enumerate(keys, 1)}
    places = iter(found if named else keys)
    text = _PLACEHOLDER.sub(lambda _: f"${numbers[next(places)]}", SQL[name])
    return _Statement(text.encode(), tuple(each for each, _ in keys) if named else None, [_FORMATS[f] for _, f in keys])


def _bind(values: abc.Transformer, name: str, given: Any) -> _Bound:
    statement = _statement(name)
    if isinstance(given, Mapping):
        assert statement.names is not None, f"the parameters of '{name}' have no names"
        given = [given[each] for each in statement.names]
    assert len(given) == len(statement.formats), f"'{name}' takes {len(statement.formats)} values, not {len(given)}"
    if not given:
        return _Bound(name, (), (), ())
    try:
        dumped = values.dump_sequence(given, statement.formats)
    except UnicodeEncodeError as exc:
        raise psycopg.DataError(f"a text is not Unicode: {exc}") from exc
    return _Bound(name, dumped, tuple(values.types or ()), tuple(values.formats or ()))


def _results(database: PGconn) -> Generator[Any, Any, list[PGresult]]:
    """Send all statements and wait for all results. If the connection is lost, raises the error that the server sent
    before, if there is one, because it gives the reason."""
    found: list[PGresult] = []
    try:
        yield from send(database)
        while True:
            for result in (yield from fetch_many(database)):
                if result.status == pq.ExecStatus.PIPELINE_SYNC:
                    return found
                found.append(result)
    except psycopg.OperationalError:
        for result in found:
            if result.status not in _DONE:
                raise error_from_result(result) from None
        raise


def _answer(values: abc.Transformer, result: PGresult) -> StatementResult:
    rows: list[Row] = []
    if result.ntuples:
        values.set_pgresult(result)
        rows = values.load_rows(0, result.ntuples, tuple)
        values.set_pgresult(None)
    return StatementResult(rows, result.command_tuples or 0, (result.command_status or b"").decode())
