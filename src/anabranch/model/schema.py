"""A stream's schema: its body columns, and which of them are the routing key and the event time.

Imports pyarrow only when the columns are first accessed, because listing streams by name doesn't need it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from anabranch.errors import CorruptCatalog, SchemaMismatch

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.model.check import StreamCheck


class StreamSchema:
    """Columns as they are stored, all nullable; `key` and `time` name two of them, or are None. Immutable.

    A raw stream stores `key: string`, `time: timestamp[us, UTC]`, `payload: binary`, and its events' body is the
    payload's bytes. A typed stream's body is a mapping of its columns. Without a key column, events are spread over the
    segments; without a time column, events have no event time.
    """

    __slots__ = ("_checks", "_columns", "key", "raw", "time")

    def __init__(
        self,
        columns: pa.Schema | Callable[[], pa.Schema],
        key: str | None,
        time: str | None,
        raw: bool = False,
        checks: tuple[StreamCheck, ...] = (),
    ) -> None:
        """`columns` may be a function, which is called when the columns are first accessed. What it returns may have
        checks in its metadata (`model.check`), which are then those of the schema."""
        self._columns = columns
        self._checks = checks
        self.key = key
        self.time = time
        self.raw = raw

    @property
    def columns(self) -> pa.Schema:
        """The columns, in order."""
        if callable(self._columns):
            from anabranch.model.check import checks_in

            columns = self._columns()
            if columns.metadata:
                self._checks = checks_in(columns)
                columns = columns.remove_metadata()
            self._columns = columns  # set last: other threads take it as a sign that the checks are set
        return self._columns

    @property
    def checks(self) -> tuple[StreamCheck, ...]:
        """The checks that each event must pass. They are no part of what makes schemas equal."""
        if callable(self._columns):
            _ = self.columns
        return self._checks

    @property
    def diverts(self) -> bool:
        """True if a check sends events to another stream."""
        return any(each.violations is not None for each in self.checks)

    @property
    def refusing(self) -> StreamSchema:
        """This schema with those of its checks that refuse events, instead of sending them to another stream."""
        return self.with_checks(tuple(each for each in self.checks if each.violations is None))

    def with_checks(self, checks: tuple[StreamCheck, ...]) -> StreamSchema:
        """This schema with these checks instead of its own, which the caller has examined."""
        return StreamSchema(
            self._columns if not callable(self._columns) else self.columns, self.key, self.time, self.raw, checks
        )

    @classmethod
    def typed(cls, columns: pa.Schema, key: str | None = None, time: str | None = None) -> StreamSchema:
        """A schema of the user's columns, `stored_schema`. Raises InvalidArgument."""
        from anabranch.model.columns import stored_schema

        return cls(stored_schema(columns, key, time), key, time)

    def evolved(self, columns: pa.Schema) -> StreamSchema:
        """This schema followed by the new nullable columns in `columns`. Raises SchemaMismatch."""
        import pyarrow as pa

        if self.raw:
            raise SchemaMismatch("a raw stream has no schema to evolve")
        wider = StreamSchema.typed(columns, self.key, self.time).columns
        for field in self.columns:
            index = wider.get_field_index(field.name)
            if index < 0:
                raise SchemaMismatch(f"column '{field.name}' can't be dropped", column=field.name)
            if wider.field(index).type != field.type:
                raise SchemaMismatch(
                    f"column '{field.name}' can't change its type from {field.type}", column=field.name
                )
        added = [field for field in wider if field.name not in self.columns.names]
        return StreamSchema(pa.schema([*self.columns, *added]), self.key, self.time, checks=self.checks)

    def with_columns(self, columns: pa.Schema) -> StreamSchema:
        """As `evolved`, where `columns` may leave out columns of this schema."""
        import pyarrow as pa

        return self.evolved(
            pa.schema([*(field for field in self.columns if field.name not in columns.names), *columns])
        )

    def columns_to_bytes(self) -> bytes:
        """The columns alone as an Arrow IPC schema message, the form stored beside events."""
        return bytes(self.columns.serialize().to_pybytes())

    def to_bytes(self) -> bytes:
        """The columns as an Arrow IPC schema message, with the checks in its metadata: the form stored in the catalog."""
        from anabranch.model.check import with_checks

        return bytes(with_checks(self.columns, self.checks).serialize().to_pybytes())

    @classmethod
    def from_bytes(cls, data: bytes, key: str | None, time: str | None, raw: bool) -> StreamSchema:
        """The inverse of `to_bytes`."""
        return cls(lambda: _decoded(data), key, time, raw)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamSchema):
            return NotImplemented
        return (self.key, self.time, self.raw) == (other.key, other.time, other.raw) and self.columns == other.columns

    def __hash__(self) -> int:
        return hash((self.columns, self.key, self.time, self.raw))

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.columns)
        return f"StreamSchema({columns}; key={self.key!r}, time={self.time!r}, raw={self.raw})"

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamSchema, (self.columns, self.key, self.time, self.raw, self.checks)


def _decoded(data: bytes) -> pa.Schema:
    import pyarrow as pa

    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise CorruptCatalog(f"the columns of a stream can't be read: {exc}") from exc


def _raw_columns() -> pa.Schema:
    from anabranch.model.columns import RAW_COLUMNS

    return RAW_COLUMNS


RAW: Final = StreamSchema(_raw_columns, "key", "time", raw=True)
