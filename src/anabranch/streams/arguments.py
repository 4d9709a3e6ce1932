"""What callers give the stream manager, as its verbs take it; and how a request says what it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidArgument
from anabranch.model.ids import SegmentId
from anabranch.model.schema import RAW, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa


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
