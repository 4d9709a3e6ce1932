"""Arguments of the stream manager's methods: checks, conversions, and the text under which a request records them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.errors import InvalidArgument, InvalidName
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed, Scaling
from anabranch.model.schema import RAW, StreamSchema
from anabranch.model.times import TimeRules, to_micros
from anabranch.streams.retention.policy import Retention

if TYPE_CHECKING:
    import pyarrow as pa


_SEGMENT: Final = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})")

StreamKey = str | StreamName | StreamId
"""An existing stream: by its name, an alias, or its id, which stays the same across renames."""


def stream_key(stream: StreamKey) -> StreamName | StreamId:
    """The name or id by which to find a stream. Raises InvalidName."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        if not 0 <= stream < 1 << 63:
            raise InvalidName(f"expected a stream id of 63 bits, got {stream}")
        return stream
    return StreamName.parse(stream)


def stream_list(streams: Sequence[str | StreamName] | str | StreamName | None) -> list[str | StreamName] | None:
    """Several streams, or one, as a list; None stays None. Raises InvalidArgument for anything else."""
    if isinstance(streams, str | StreamName):
        return [streams]
    if streams is None or isinstance(streams, Collection):
        return None if streams is None else list(streams)
    raise InvalidArgument(f"expected streams= as a list of streams, got {streams!r:.100}")


def request_label(stream: StreamName | StreamId) -> str:
    """The stream's name or id as text, as requests record it."""
    return f"{stream:016x}" if isinstance(stream, int) else str(stream)


def retention_of(policy: Any) -> Retention | None:
    """The retention policy itself. Raises InvalidArgument for anything else."""
    if policy is None or isinstance(policy, Retention):
        return policy
    raise InvalidArgument(
        f"expected a retention policy (RetainFor, RetainBytes, RetainConsumed, joined by |) or None, got {policy!r}"
    )


def scaling_of(policy: Any) -> Scaling:
    """A scaling policy; a number of segments becomes `Fixed`. Raises InvalidArgument for anything else."""
    if isinstance(policy, int) and not isinstance(policy, bool):
        return Fixed(policy)
    if isinstance(policy, Scaling):
        return policy
    raise InvalidArgument(
        f"expected a scaling policy (Fixed, ByEventRate, ByByteRate) or a number of segments, got {policy!r}"
    )


def stream_schema(columns: Any, key: str | None, time: str | None) -> StreamSchema:
    """A stream's schema: typed where columns are given, else raw. Raises InvalidArgument, SchemaMismatch."""
    if columns is None:
        if key is not None or time is not None:
            raise InvalidArgument("key= and time= name columns of a schema: pass schema= too, or neither of them")
        return RAW
    return StreamSchema.typed(columns_of(columns), key, time)


def columns_of(schema: Any) -> pa.Schema:
    """The columns that `schema` describes: an Arrow schema, a value that `pyarrow.schema` accepts (a mapping or pairs
    of names and types), or data that has one (a table, a DataFrame of pandas or polars, a Reader …), which is not read.
    Raises InvalidArgument."""
    import pyarrow as pa

    from anabranch.model.columns import user_columns

    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(own := getattr(schema, "schema", None), pa.Schema):
        return user_columns(own)
    if hasattr(schema, "__arrow_c_stream__"):
        return user_columns(pa.RecordBatchReader.from_stream(schema).schema)
    try:
        return pa.schema(schema)
    except (TypeError, ValueError, pa.ArrowInvalid) as exc:
        raise InvalidArgument(
            'expected the columns as names with types, such as {"celsius": "float64"}, an Arrow schema or a DataFrame'
        ) from exc


def time_range(between: Any, rules: TimeRules) -> tuple[Micros, Micros]:
    """A range of times in µs. Raises InvalidArgument, also for an empty one."""
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise InvalidArgument(f"expected between= as two times (start, end), got {between!r}")
    low, high = (to_micros(each, rules) for each in between)
    if low >= high:
        raise InvalidArgument(f"expected between= to begin before it ends; {between[0]!r} is not before {between[1]!r}")
    return low, high


def arguments_text(**arguments: Any) -> str:
    """The arguments of a request as text, so that reuse of the id with other arguments is detected."""
    return "".join(f" {name}={_as_text(value)}" for name, value in arguments.items() if value)


def _as_text(value: Any) -> str:
    if isinstance(value, StreamSchema):
        return f"{digest(value.columns)},{value.key},{value.time},{value.raw}"
    if isinstance(value, Mapping):
        return ",".join(f"{each}:{_as_text(value[each])}" for each in sorted(value, key=str))
    if isinstance(value, Sequence) and not isinstance(value, str | SegmentId):
        return ",".join(map(str, value))
    return str(value)


def digest(columns: pa.Schema) -> str:
    """A digest of the columns, in 16 hex digits."""
    from anabranch.core.checksum import checksum

    return checksum(columns.serialize()).to_bytes(8, "big", signed=True).hex()


def segment_id(text: SegmentId | str) -> SegmentId:
    """A segment id from its text. Raises InvalidArgument."""
    if isinstance(text, SegmentId):
        return text
    found = _SEGMENT.fullmatch(str(text))
    if found is None:
        raise InvalidArgument(f"expected a segment as epoch.number, such as 0.3, got '{text!s:.100}'")
    return SegmentId(int(found[1]), int(found[2]))
