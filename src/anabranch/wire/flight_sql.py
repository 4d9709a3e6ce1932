"""The commands of Flight SQL as bytes: a message in a google.protobuf.Any."""

from __future__ import annotations

from typing import Final

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.wire.commands import parse
from anabranch.wire.v1 import flight_sql_pb2 as sql

DIALECT_HEADER: Final = "anabranch-dialect"
"""The header by which a call names the dialect of its SQL."""
PACKAGE: Final = sql.DESCRIPTOR.package
_KNOWN: Final = {
    f"{PACKAGE}.{name}": getattr(sql, name)
    for name in sql.DESCRIPTOR.message_types_by_name
    if not name.endswith("Result")
}


def unpack_sql(data: bytes) -> Message:
    """The command of these bytes. Raises InvalidArgument."""
    if len(data) > limits.COMMAND_BYTES_MAX:
        raise InvalidArgument(f"a command has at most {limits.COMMAND_BYTES_MAX:,} bytes, not {len(data):,}")
    try:
        packed = Any.FromString(data)
    except DecodeError as exc:
        raise InvalidArgument("expected a command: a message of anabranch.v1 or of Flight SQL in an Any") from exc
    name = packed.type_url.rpartition("/")[2]
    if name not in _KNOWN:
        raise InvalidArgument(
            f"unknown command '{name:.100}'; this broker knows those of anabranch.v1 and of Flight SQL"
        )
    found: Message = parse(_KNOWN[name], packed.value)
    return found


__all__ = ["DIALECT_HEADER", "PACKAGE", "unpack_sql"]
