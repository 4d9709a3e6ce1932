"""Changing a stream's description: its schema and tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.checks import refuse_unusable
from anabranch.errors import SchemaMismatch
from anabranch.model.check import StreamCheck
from anabranch.model.ids import Micros
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamInfo
from anabranch.streams.directory.scopes import check_tags


def evolve_stream(txn: Writing, info: StreamInfo, schema: StreamSchema, now: Micros) -> None:
    """Give the stream a schema that has more columns than its own."""
    if schema == info.schema:
        return
    txn.update_stream(replace(info, schema=schema, schema_version=info.schema_version + 1, version=info.version + 1))
    added = [name for name in schema.columns.names if name not in info.schema.columns.names]
    txn.add_change(info.id, "evolved", {"columns": added}, now=now)


def put_checks(txn: Writing, info: StreamInfo, checks: tuple[StreamCheck, ...], now: Micros) -> None:
    """Replace the checks. Raises InvalidSql for one that can't be used on the stream's columns, SchemaMismatch for a raw
    stream."""
    if checks == info.schema.checks:
        return
    refuse_unusable_checks(info.schema, checks)
    schema = info.schema.with_checks(checks)
    txn.update_stream(replace(info, schema=schema, schema_version=info.schema_version + 1, version=info.version + 1))
    txn.add_change(info.id, "checks", {"checks": {each.name: each.condition for each in checks}}, now=now)


def refuse_unusable_checks(schema: StreamSchema, checks: tuple[StreamCheck, ...]) -> None:
    """Raise as `put_checks`."""
    if checks and schema.raw:
        raise SchemaMismatch("a raw stream has no columns to check")
    refuse_unusable(checks, schema.columns)


def tag_stream(txn: Writing, info: StreamInfo, tags: Mapping[str, str], now: Micros) -> None:
    """Replace the tags."""
    txn.update_stream(replace(info, tags=check_tags(tags), version=info.version + 1))
    txn.add_change(info.id, "tagged", {"tags": dict(tags)}, now=now)
