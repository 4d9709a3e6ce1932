"""Positions in the application's own database, stored in the transaction that stores its output."""

from __future__ import annotations

import sys
from typing import Any, Final, Protocol

from anabranch.catalog.queries import load
from anabranch.errors import InvalidArgument, ReaderNotInGroup
from anabranch.model.position import Position, StreamSegment

_SQL: Final = load("anabranch.readers.group")
_MARKS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class Connection(Protocol):
    """A connection as PEP 249 has it."""

    def cursor(self) -> Any:
        """A cursor."""
        ...


class _Reads(Protocol):
    @property
    def group(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def position(self) -> Position: ...


class SqlPositions:
    """How far a group is, in the table `anabranch_positions` of any SQL database. It makes the output exactly once:

        positions = ab.SqlPositions(connection)
        with group.reader("r1", delivery="exactly_once", positions=positions) as reader:
            for batch in reader.batches():
                ...                         # INSERT the output through the same connection
                positions.store(reader)     # in the same transaction
                connection.commit()
                reader.commit()             # the group may know it too

    A position is stored only over the one it was read from. So where another reader went on in this one's place, the
    transaction is refused, whatever either knows of the group. `connection` is a PEP 249 connection (sqlite3, psycopg …), used by the
    thread that reads; the table is made, and committed, when this object is. After a rollback, open the reader anew.
    """

    def __init__(self, connection: Connection, *, placeholder: str | None = None) -> None:
        """`placeholder` is what stands for a value in the database's SQL, found out by itself for usual libraries."""
        self._connection = connection
        self._mark = placeholder or _placeholder(connection)
        self._known: dict[tuple[str, StreamSegment], int | None] = {}
        self._do("create")
        commit = getattr(connection, "commit", None)
        if commit is not None:
            commit()

    def load(self, group: str, segment: StreamSegment) -> int | None:
        """The offset that is stored for a segment, or None."""
        cursor = self._do("load", group, str(segment))
        row = cursor.fetchone()
        self._known[group, segment] = None if row is None else int(row[0])
        return self._known[group, segment]

    def store(self, reader: _Reads) -> None:
        """Store a reader's position, within the transaction that is open. Raises ReaderNotInGroup where another reader
        went on in this one's place: roll the transaction back."""
        for segment, offset in reader.position:
            before = self._known.get((reader.group, segment))
            if before == offset:
                continue
            if before is None:
                self._insert(reader, segment, offset)
            elif self._do("move", offset, reader.group, str(segment), before).rowcount != 1:
                raise ReaderNotInGroup(reader.group, reader.name)
            self._known[reader.group, segment] = offset

    def _insert(self, reader: _Reads, segment: StreamSegment, offset: int) -> None:
        try:
            self._do("insert", reader.group, str(segment), offset)
        except Exception as exc:
            if type(exc).__name__ in ("IntegrityError", "UniqueViolation", "ConstraintException"):
                raise ReaderNotInGroup(reader.group, reader.name) from exc
            raise

    def _do(self, name: str, *values: object) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(_SQL[name].replace("?", self._mark), values)
        return cursor


def _placeholder(connection: Connection) -> str:
    module = sys.modules.get(type(connection).__module__.partition(".")[0])
    style = getattr(module, "paramstyle", None)
    if style not in _MARKS:
        raise InvalidArgument(
            f"how {type(connection).__module__} marks values is not known: say placeholder='?' or '%s'"
        )
    return _MARKS[style]
