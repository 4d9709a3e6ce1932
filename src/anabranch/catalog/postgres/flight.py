"""A connection on which named statements fly together: they go out at once, and their answers come back at once.

The driver's own pipeline waits for the socket before each statement and behind it, which takes four to five times the
processor time. So this speaks to libpq through the driver, and prepares statements itself: each once for a connection,
and no rollback undoes that.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import abc, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq.abc import PGconn, PGresult

from anabranch.catalog.queries import load
from anabranch.catalog.rows import Row

SQL = load("anabranch.catalog.postgres")

Asked: TypeAlias = tuple[str, Any]  # the name of a statement, and its values by place or by name

_PLACEHOLDER: Final = re.compile(r"%(?:\((\w+)\))?([sb])")
_FORMATS: Final = {"s": PyFormat.AUTO, "b": PyFormat.BINARY}
_DONE: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


class Answer(NamedTuple):
    """What came of a statement: its rows, how many it found or changed, and what the server calls that."""

    rows: list[Row]
    affected: int
    done: str


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """The driver's, with `fly`. For one thread at a time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._values = Transformer(self)  # knows how to pass on what it has met once
        self._numbers = count()
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}  # what is prepared: statements with types of values

    def fly(self, asked: Sequence[Asked]) -> list[Answer]:
        """Run statements of `SQL`, in order and in one round trip. Raises psycopg.Error, that of the first that fails;
        those behind it do not run then. What stops it otherwise closes the connection."""
        values = self._values
        bound = [_bind(values, *each) for each in asked]
        self.pgconn.enter_pipeline_mode()
        try:
            sent = self._send(bound)
            found = self.wait(_results(self.pgconn))
            self.pgconn.exit_pipeline_mode()
        except BaseException:
            self.close()  # answers that nobody took would be taken for those of the next
            raise
        for number, result in enumerate(found):
            if result.status not in _DONE:
                for each in sent[number:]:
                    if each is not None:
                        del self._names[each]
                raise error_from_result(result, encoding=self.info.encoding)
        return [_answer(values, result) for each, result in zip(sent, found, strict=True) if each is None]

    def _send(self, bound: Sequence[_Bound]) -> list[tuple[str, tuple[int, ...]] | None]:
        """Put statements into libpq's buffer. For each result to come, what is prepared by it, None where it is an answer."""
        sent: list[tuple[str, tuple[int, ...]] | None] = []
        for each in bound:
            key = (each.name, each.types)
            name = self._names.get(key)
            if name is None:
                # Behind those before it: a transaction that begins with this flight must come first.
                name = self._names[key] = b"anabranch_%d" % next(self._numbers)
                self.pgconn.send_prepare(name, _statement(each.name).text, each.types)
                sent.append(key)
            self.pgconn.send_query_prepared(name, each.values, each.formats, pq.Format.BINARY)
            sent.append(None)
        self.pgconn.pipeline_sync()
        return sent


class _Statement(NamedTuple):
    """A statement as the server takes it, and its parameters in order: their names, where they have any, and formats."""

    text: bytes
    names: tuple[str, ...] | None
    formats: list[PyFormat]


class _Bound(NamedTuple):
    """A named statement, and its values as the server takes them."""

    name: str
    values: Sequence[Any]
    types: tuple[int, ...]
    formats: Sequence[pq.Format]


@cache
def _statement(name: str) -> _Statement:
    found = _PLACEHOLDER.findall(SQL[name])
    named = any(each for each, _ in found)
    # A name that comes twice is one parameter.
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
    dumped = values.dump_sequence(given, statement.formats)
    return _Bound(name, dumped, tuple(values.types or ()), tuple(values.formats or ()))


def _results(database: PGconn) -> Generator[Any, Any, list[PGresult]]:
    """Send all, and wait for all that comes of it. Where the connection is lost, what was said last tells why."""
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


def _answer(values: abc.Transformer, result: PGresult) -> Answer:
    rows: list[Row] = []
    if result.ntuples:
        values.set_pgresult(result)
        rows = values.load_rows(0, result.ntuples, tuple)
        values.set_pgresult(None)
    return Answer(rows, result.command_tuples or 0, (result.command_status or b"").decode())
