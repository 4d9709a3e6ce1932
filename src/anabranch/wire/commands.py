"""The commands of Arrow Flight, ours and those of Flight SQL, as bytes: a message in a google.protobuf.Any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.streams.arguments import StreamKey
from anabranch.wire.v1 import anabranch_pb2 as v1
from anabranch.wire.v1 import flight_sql_pb2 as sql

M = TypeVar("M", bound=Message)

PING: Final = "ping"
"""The kind of an action without arguments and results: a sign of life."""

DIALECT_HEADER: Final = "anabranch-dialect"
"""The header by which a call of Flight SQL names the dialect of its SQL."""

_OURS: Final = (v1.AppendCommand, v1.ReadCommand, v1.RangeReadCommand, v1.ByteReadCommand, v1.DescribeCommand)
_OF_SQL: Final = [getattr(sql, name) for name in sql.DESCRIPTOR.message_types_by_name if not name.endswith("Result")]
_COMMANDS: Final[Mapping[str, type[Message]]] = {kind.DESCRIPTOR.full_name: kind for kind in (*_OURS, *_OF_SQL)}


def named_stream(command: v1.AppendCommand | v1.ReadCommand | v1.DescribeCommand) -> StreamKey:
    """The stream that a command is about, by its id if it has one."""
    return StreamId(command.stream_id) if command.HasField("stream_id") else command.stream


def pack(command: Message) -> bytes:
    """The bytes of a command."""
    packed = Any()
    packed.Pack(command)
    return packed.SerializeToString()


def kind_of(data: bytes) -> str:
    """The full name of the packed message, such as `anabranch.v1.ReadCommand`; "" if these bytes are not a command."""
    try:
        return Any.FromString(data).type_url.rpartition("/")[2] if len(data) <= limits.COMMAND_BYTES_MAX else ""
    except DecodeError:
        return ""


def unpack(data: bytes) -> Message:
    """The command of these bytes. Raises InvalidArgument."""
    if len(data) > limits.COMMAND_BYTES_MAX:
        raise InvalidArgument(f"a command has at most {limits.COMMAND_BYTES_MAX:,} bytes, not {len(data):,}")
    try:
        packed = Any.FromString(data)
    except DecodeError as exc:
        raise InvalidArgument("expected a command: a message of anabranch.v1 or of Flight SQL in an Any") from exc
    name = packed.type_url.rpartition("/")[2]
    kind = _COMMANDS.get(name)
    if kind is None:
        raise InvalidArgument(
            f"unknown command '{name:.100}'; this broker knows those of anabranch.v1 and of Flight SQL"
        )
    return parse(kind, packed.value)


def unpack_as(kind: type[M], data: bytes) -> M:
    """The command of these bytes. Raises InvalidArgument, also for a command of another kind."""
    command = unpack(data)
    if not isinstance(command, kind):
        raise InvalidArgument(f"expected {kind.DESCRIPTOR.full_name}, got {command.DESCRIPTOR.full_name}")
    return command


def parse(kind: type[M], data: bytes) -> M:
    """The message of these bytes. Raises InvalidArgument."""
    try:
        return kind.FromString(data)
    except DecodeError as exc:
        raise InvalidArgument(f"these bytes are not a {kind.DESCRIPTOR.full_name}") from exc
