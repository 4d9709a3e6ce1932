"""A group's positions in the application's own database, stored in the transaction that stores its output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, Protocol

from anabranch.catalog.queries import load
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument, ReaderNotInGroup
from anabranch.model.position import Position, StreamSegment

_SQL: Final = load("anabranch.groups")
_PLACEHOLDERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class SqlConnection(Protocol):
    """A connection as PEP 249 defines it."""

    def cursor(self) -> Any:
        """A cursor."""


class _PositionedReader(Protocol):
    @property
    def group(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def position(self) -> Position: ...


class SqlPositions(Displayed):
    """Stores a group's positions in the table `anabranch_positions` of any SQL database, for exactly-once output:

        positions = ab.SqlPositions(connection)
        with group.reader("r1", delivery="exactly_once", positions=positions) as reader:
            for batch in reader.batches():
                ...                         # INSERT the output through the same connection
                positions.store(reader)     # in the same transaction
                connection.commit()
                reader.commit()             # then report it to the group

    A position is stored by compare-and-set against the one that was loaded. So if another reader has taken over, the
    transaction fails, even where neither reader has noticed it in the group. `connection` is a PEP 249 connection
    (sqlite3, psycopg …), used by the thread that reads. Creating this object commits, and creates the table if it is
    missing. After a rollback, open the reader again.
    """

    def __init__(self, connection: SqlConnection, *, placeholder: str | None = None) -> None:
        """`placeholder` is the parameter marker in the database's SQL; it is detected from PEP 249's `paramstyle`."""
        self._connection = connection
        self._placeholder = placeholder or _detect_placeholder(connection)
        self._loaded: dict[tuple[str, StreamSegment], int | None] = {}
        self._stored: dict[tuple[str, str], dict[StreamSegment, int]] = {}  # what each reader stored last
        self._create_table()

    def load(self, group: str, segment: StreamSegment) -> int | None:
        """The offset stored for a segment, or None."""
        cursor = self._execute("load", group, str(segment))
        row = cursor.fetchone()
        self._loaded[group, segment] = None if row is None else int(row[0])
        for (stored_group, _), stored in self._stored.items():
            if stored_group == group:
                stored.pop(segment, None)
        return self._loaded[group, segment]

    def store(self, reader: _PositionedReader) -> None:
        """Store a reader's position, within the open transaction. Raises ReaderNotInGroup where another reader has
        taken over, or where the transaction that stored the last position was rolled back: roll this one back too, and
        open the reader again."""
        position = reader.position.as_dict()
        self._check_stored(reader, position)
        stored: dict[StreamSegment, int] = {}
        for segment, offset in position.items():
            before = self._loaded.get((reader.group, segment))
            if before == offset:
                continue
            if before is None:
                self._insert(reader, segment, offset)
            elif self._execute("move", offset, reader.group, str(segment), before).rowcount != 1:
                raise ReaderNotInGroup(reader.group, reader.name)
            self._loaded[reader.group, segment] = stored[segment] = offset
        if stored:
            self._stored[reader.group, reader.name] = stored

    def _create_table(self) -> None:
        self._end("commit")  # so that undoing a failed creation undoes nothing else
        try:
            self._execute("create")
        except Exception:
            # Another process created it at the same moment, or this role may use the table but not create one.
            if not self._has_table():
                raise
        self._end("commit")

    def _has_table(self) -> bool:
        with suppress(Exception):  # some databases roll back by themselves
            self._end("rollback")
        try:
            self._execute("load", "", "").fetchone()
        except Exception:
            return False
        return True

    def _end(self, how: Literal["commit", "rollback"]) -> None:
        """End the transaction, where the connection has them."""
        end = getattr(self._connection, how, None)
        if end is not None:
            end()

    def _check_stored(self, reader: _PositionedReader, position: Mapping[StreamSegment, int]) -> None:
        """Detect that a rollback undid the last stored position. Continuing after it would commit output without its
        position, and that output would then be produced again."""
        for segment, offset in self._stored.get((reader.group, reader.name), {}).items():
            if segment in position and self._loaded.get((reader.group, segment)) == offset:
                row = self._execute("load", reader.group, str(segment)).fetchone()
                if row is None or int(row[0]) != offset:
                    raise ReaderNotInGroup(reader.group, reader.name)

    def _insert(self, reader: _PositionedReader, segment: StreamSegment, offset: int) -> None:
        try:
            self._execute("insert", reader.group, str(segment), offset)
        except Exception as exc:
            if type(exc).__name__ in ("IntegrityError", "UniqueViolation", "ConstraintException"):
                raise ReaderNotInGroup(reader.group, reader.name) from exc
            raise

    def _execute(self, name: str, *values: object) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(_SQL[name].replace("?", self._placeholder), values)
        return cursor


def _detect_placeholder(connection: SqlConnection) -> str:
    module = sys.modules.get(type(connection).__module__.partition(".")[0])
    style = getattr(module, "paramstyle", None)
    if style not in _PLACEHOLDERS:
        raise InvalidArgument(
            f"expected a PEP 249 module with paramstyle qmark or format, got {type(connection).__module__}:"
            " pass placeholder='?' or '%s'"
        )
    return _PLACEHOLDERS[style]
