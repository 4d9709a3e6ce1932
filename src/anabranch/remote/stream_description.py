"""What a writer or reader of a broker's stream needs to know of it first."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.remote.connection import Connection
from anabranch.wire.commands import parse
from anabranch.wire.v1 import anabranch_pb2 as v1


@dataclass(frozen=True, slots=True)
class DescribedStream:
    """A stream as its broker describes it."""

    id: StreamId
    name: StreamName
    schema: StreamSchema
    sealed: bool
    byte_stream: bool


def describe(connection: Connection, stream: str | StreamName, ident: StreamId | None = None) -> DescribedStream:
    """Ask for a stream; with its id, also if it was renamed since. Raises StreamNotFound, PermissionDenied, StoreUnavailable."""
    if not isinstance(stream, str | StreamName):
        raise InvalidArgument(f"expected the name of a stream, got {type(stream).__name__}")
    found = connection.retried(lambda: _ask(connection, v1.DescribeCommand(stream=str(stream), stream_id=ident)))
    key = found.key if found.HasField("key") else None
    time = found.time if found.HasField("time") else None
    schema = StreamSchema.from_bytes(found.columns, key, time, found.raw)
    return DescribedStream(StreamId(found.id), StreamName.parse(found.name), schema, found.sealed, found.byte_stream)


def _ask(connection: Connection, command: v1.DescribeCommand) -> v1.StreamDescription:
    info = connection.channel.info(command)
    return parse(v1.StreamDescription, info.app_metadata)
