"""Changing a stream's description: its schema, checks and tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from anabranch.catalog.port import Writing
from anabranch.core.byte_stream import BYTES, is_byte_stream, may_hold_bytes, no_byte_stream
from anabranch.core.checks import CHECK_COLUMN, refuse_unusable
from anabranch.errors import InvalidArgument, SchemaMismatch, StreamExists
from anabranch.model.check import StreamCheck
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.streams.directory.scopes import check_tags
from anabranch.streams.lifecycle.create import create_stream
from anabranch.streams.segments import need_open_log, open_successor


def evolve_stream(txn: Writing, info: StreamInfo, schema: StreamSchema, now: Micros) -> None:
    """Give the stream a schema that has more columns than its own."""
    if schema == info.schema:
        return
    _put_schema(txn, info, schema)
    added = [name for name in schema.columns.names if name not in info.schema.columns.names]
    txn.add_change(info.id, "evolved", {"columns": added}, now=now)


def make_byte_stream(txn: Writing, view: StreamView, now: Micros) -> None:
    """Give the stream the columns of a byte stream, unless it has them. Raises InvalidArgument for a stream that held an
    event or was scaled.

    Its log is replaced by a new one, so that an append in flight to the old log is refused. Its writer, which still has
    the raw schema, then learns of the change.
    """
    info = view.info
    if is_byte_stream(info):
        return
    if not may_hold_bytes(view):
        raise no_byte_stream(info)
    (segment,) = view.current
    old = need_open_log(view, segment)
    txn.update_log(replace(old, sealed=True))
    txn.drop_spans(info.id, segment.id)
    open_successor(txn, info.id, segment, [old])
    _put_schema(txn, info, BYTES)
    txn.add_change(info.id, "evolved", {"columns": BYTES.columns.names}, now=now)


def put_checks(txn: Writing, info: StreamInfo, checks: tuple[StreamCheck, ...], now: Micros) -> None:
    """Replace the checks. Raises InvalidSql for one that can't be used on the stream's columns, SchemaMismatch for a raw
    stream."""
    if checks == info.schema.checks:
        return
    refuse_unusable_checks(info.schema, checks)
    _put_schema(txn, info, info.schema.with_checks(checks))
    txn.add_change(info.id, "checks", {"checks": {each.name: each.condition for each in checks}}, now=now)


def refuse_unusable_checks(schema: StreamSchema, checks: tuple[StreamCheck, ...]) -> None:
    """Raise as `put_checks`."""
    if checks and schema.raw:
        raise SchemaMismatch("a raw stream has no columns to check")
    refuse_unusable(checks, schema.columns)


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


def tag_stream(txn: Writing, info: StreamInfo, tags: Mapping[str, str], now: Micros) -> None:
    """Replace the tags."""
    txn.update_stream(replace(info, tags=check_tags(tags), version=info.version + 1))
    txn.add_change(info.id, "tagged", {"tags": dict(tags)}, now=now)


def _put_schema(txn: Writing, info: StreamInfo, schema: StreamSchema) -> None:
    txn.update_stream(replace(info, schema=schema, schema_version=info.schema_version + 1, version=info.version + 1))
