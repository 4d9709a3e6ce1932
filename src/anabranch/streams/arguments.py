"""What callers give the stream manager, as its verbs take it; and how a request says what it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidArgument, InvalidName
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed, Scaling
from anabranch.model.retention import Retention
from anabranch.model.schema import RAW, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa


Which = str | StreamName | StreamId
"""A stream that is there: by its name, by an alias, or by its id, which means the same stream whatever it is called."""


def which(stream: Which) -> StreamName | StreamId:
    """What a stream is found by. Raises InvalidName."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        if not 0 <= stream < 1 << 63:
            raise InvalidName(f"{stream} is no stream's id: these have 63 bits")
        return stream
    return StreamName.parse(stream)


def shown(stream: StreamName | StreamId) -> str:
    """The same as requests note it."""
    return f"{stream:016x}" if isinstance(stream, int) else str(stream)


def retention_of(policy: Any) -> Retention | None:
    """A retention policy as it is. Raises InvalidArgument for what is none."""
    if policy is None or isinstance(policy, Retention):
        return policy
    raise InvalidArgument(f"a retention policy is RetainFor or RetainBytes, both joined by |, or None, not {policy!r}")


def scaling_of(policy: Any) -> Scaling:
    """A scaling policy, or a number of segments as one. Raises InvalidArgument for what is none."""
    if isinstance(policy, int) and not isinstance(policy, bool):
        return Fixed(policy)
    if isinstance(policy, Scaling):
        return policy
    raise InvalidArgument(
        f"a scaling policy is Fixed, ByEventRate or ByByteRate, or a number of segments, not {policy!r}"
    )


def wanted_schema(columns: Any, key: str | None, time: str | None) -> StreamSchema:
    """A stream's schema: typed where columns are given, else raw. Raises InvalidArgument, SchemaMismatch."""
    if columns is None:
        if key is not None or time is not None:
            raise InvalidArgument("key= and time= name columns of a schema; a raw stream has its own")
        return RAW
    return StreamSchema.typed(columns_of(columns), key, time)


def columns_of(schema: Any) -> pa.Schema:
    """An Arrow schema, or what makes one. Raises InvalidArgument."""
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return schema
    try:
        return pa.schema(schema)
    except (TypeError, ValueError, pa.ArrowInvalid) as exc:
        raise InvalidArgument(f"schema= takes an Arrow schema or what makes one, not {type(schema).__name__}") from exc


def said(**arguments: Any) -> str:
    """The arguments of a request as text, so that the same id with others is noticed."""
    return "".join(f" {name}={_as_said(value)}" for name, value in arguments.items() if value)


def _as_said(value: Any) -> str:
    if isinstance(value, StreamSchema):
        return f"{digest(value.columns)},{value.key},{value.time},{value.raw}"
    if isinstance(value, Mapping):
        return ",".join(f"{each}:{_as_said(value[each])}" for each in sorted(value, key=str))
    if isinstance(value, Sequence) and not isinstance(value, str | SegmentId):
        return ",".join(map(str, value))
    return str(value)


def digest(columns: pa.Schema) -> str:
    """The columns in 16 hex digits."""
    from anabranch.core.checksum import checksum

    return checksum(columns.serialize()).to_bytes(8, "big", signed=True).hex()


def segment_id(text: SegmentId | str) -> SegmentId:
    """A segment by its text. Raises InvalidArgument."""
    if isinstance(text, SegmentId):
        return text
    epoch, dot, number = str(text).partition(".")
    if not (dot and epoch.isdigit() and number.isdigit()):
        raise InvalidArgument(f"'{text}' is no segment: write epoch.number, as 0.3")
    return SegmentId(int(epoch), int(number))
