"""SQL queries that a broker runs: only their results cross the network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.remote.read_stream import cancel, next_chunk
from anabranch.remote.store import RemoteStore
from anabranch.wire.commands import DIALECT_HEADER
from anabranch.wire.flight_errors import from_flight
from anabranch.wire.v1 import flight_sql_pb2 as sql


class RemoteQueryResult:
    """The result of a query: batches of one schema, to be read once, in order. `close` stops the query."""

    def __init__(self, chunks: Any, schema: pa.Schema) -> None:
        self._chunks = chunks
        self.schema: pa.Schema = schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (chunk := next_chunk(self._chunks)) is not None:
            yield chunk.data

    def close(self) -> None:
        """Stop the query. A second close is harmless."""
        cancel(self._chunks)


def query(store: RemoteStore, text: str, dialect: str | None = None) -> RemoteQueryResult:
    """Run a query as `anabranch.query.Query.run` does, in the broker and within its limits, over the streams that the
    caller may read. With a `dialect`, such as `trino`, the broker translates it first. Raises InvalidSql, ModuleFailed, QueryLimitExceeded, PermissionDenied, RateLimited, StoreUnavailable;
    reading the result may raise these too."""
    command = sql.CommandStatementQuery(query=text)
    headers = [] if dialect is None else [_dialect_header(dialect)]

    def begin() -> RemoteQueryResult:
        chunks = store.connection.channel.read(command, headers)
        try:
            return RemoteQueryResult(chunks, chunks.schema)
        except Exception as exc:
            raise from_flight(exc) from None

    return store.connection.retried(begin)


def _dialect_header(dialect: str) -> tuple[bytes, bytes]:
    if not (dialect.isascii() and dialect.isprintable()):  # not allowed in a header
        raise InvalidArgument(f"{dialect!r:.100} is not a supported dialect")
    return DIALECT_HEADER.encode(), dialect.encode()
