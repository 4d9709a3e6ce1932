"""The stream to which a check sends the events that break it."""

from __future__ import annotations

import pyarrow as pa

from anabranch.catalog.port import Writing
from anabranch.core.checks import CHECK_COLUMN
from anabranch.errors import InvalidArgument, SchemaMismatch, StreamExists
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamInfo
from anabranch.streams.lifecycle.create import create_stream

__all__ = ["need_violations_stream"]


def need_violations_stream(txn: Writing, info: StreamInfo, name: StreamName, ident: StreamId, now: Micros) -> None:
    """Create the stream `name` for events that break a check of `info`, under the id `ident`; or check that the
    existing stream can take them. Raises as `Streams.add_check`."""
    if info.schema.raw:
        raise SchemaMismatch("a raw stream has no columns to check")
    if CHECK_COLUMN in info.schema.columns.names:
        raise InvalidArgument(f"'{info.name}' has a column '{CHECK_COLUMN}', which a stream of violations needs")
    columns = info.schema.columns.append(pa.field(CHECK_COLUMN, pa.string()))
    wanted = StreamSchema.typed(columns, info.schema.key, info.schema.time)
    present = txn.stream(name)
    if present is None:
        create_stream(txn, name, ident, wanted, Fixed(1), {}, now)
    elif present.id == info.id or present.schema.checks:
        raise InvalidArgument(f"'{name}' can't take violations of '{info.name}': it has checks itself")
    elif present.schema != wanted:
        raise StreamExists(str(name))
