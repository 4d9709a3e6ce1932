"""What Flight SQL lists: the store as the only catalog, its scopes as schemas, its streams as tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from google.protobuf.message import Message

from anabranch.model.stream import StreamInfo
from anabranch.query.sandbox import DATABASE
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.sql import facts
from anabranch.wire.v1 import flight_sql_pb2 as sql

TABLE: Final = "TABLE"


def _schema(**columns: pa.DataType) -> pa.Schema:
    """A name that ends with `_` may be null."""
    return pa.schema([pa.field(name.rstrip("_"), kind, name.endswith("_")) for name, kind in columns.items()])


_TEXT, _INT = pa.string(), pa.int32()
_CATALOGS: Final = _schema(catalog_name=_TEXT)
_SCHEMAS: Final = _schema(catalog_name_=_TEXT, db_schema_name=_TEXT)
_TABLE_TYPES: Final = _schema(table_type=_TEXT)
_TABLES: Final = _schema(catalog_name_=_TEXT, db_schema_name_=_TEXT, table_name=_TEXT, table_type=_TEXT)
_TABLES_AND_COLUMNS: Final = _TABLES.append(pa.field("table_schema", pa.binary(), False))
_PRIMARY_KEYS: Final = _schema(
    catalog_name_=_TEXT, db_schema_name_=_TEXT, table_name=_TEXT, column_name=_TEXT, key_name_=_TEXT, key_sequence=_INT
)
_FOREIGN_KEYS: Final = _schema(
    pk_catalog_name_=_TEXT,
    pk_db_schema_name_=_TEXT,
    pk_table_name=_TEXT,
    pk_column_name=_TEXT,
    fk_catalog_name_=_TEXT,
    fk_db_schema_name_=_TEXT,
    fk_table_name=_TEXT,
    fk_column_name=_TEXT,
    key_sequence=_INT,
    fk_key_name_=_TEXT,
    pk_key_name_=_TEXT,
    update_rule=pa.uint8(),
    delete_rule=pa.uint8(),
)
_ANSWERS: Final[Mapping[type[Message], pa.Schema]] = {
    sql.CommandGetSqlInfo: facts.SCHEMA,
    sql.CommandGetXdbcTypeInfo: facts.TYPES_SCHEMA,
    sql.CommandGetCatalogs: _CATALOGS,
    sql.CommandGetDbSchemas: _SCHEMAS,
    sql.CommandGetTables: _TABLES,
    sql.CommandGetTableTypes: _TABLE_TYPES,
    sql.CommandGetPrimaryKeys: _PRIMARY_KEYS,
    sql.CommandGetExportedKeys: _FOREIGN_KEYS,
    sql.CommandGetImportedKeys: _FOREIGN_KEYS,
    sql.CommandGetCrossReference: _FOREIGN_KEYS,
}


def schema_of(command: Message) -> pa.Schema | None:
    """The columns of the answer to a command that lists something; None for other commands."""
    if isinstance(command, sql.CommandGetTables) and command.include_schema:
        return _TABLES_AND_COLUMNS
    return _ANSWERS.get(type(command))


def answer(broker: Broker, principal: Principal, command: Message) -> pa.Table:
    """What the command asks for. Of streams and scopes, those that the caller may read."""
    match command:
        case sql.CommandGetSqlInfo():
            return facts.facts(command.info)
        case sql.CommandGetXdbcTypeInfo():
            return facts.types(command.data_type if command.HasField("data_type") else None)
        case sql.CommandGetCatalogs():
            return pa.table([[DATABASE]], schema=_CATALOGS)
        case sql.CommandGetDbSchemas():
            return _scopes(broker, principal, command)
        case sql.CommandGetTables():
            return _tables(broker, principal, command)
        case sql.CommandGetTableTypes():
            return pa.table([[TABLE]], schema=_TABLE_TYPES)
        case _:  # streams have no keys in the sense of a database
            return _ANSWERS[type(command)].empty_table()


def _scopes(broker: Broker, principal: Principal, command: sql.CommandGetDbSchemas) -> pa.Table:
    found = {info.name.scope for info in _streams(broker, principal)} if _is_ours(command) else set()
    pattern = _pattern(command, "db_schema_filter_pattern")
    names = sorted(name for name in found if pattern.fullmatch(name))
    return pa.table([[DATABASE] * len(names), names], schema=_SCHEMAS)


def _tables(broker: Broker, principal: Principal, command: sql.CommandGetTables) -> pa.Table:
    scope, table = _pattern(command, "db_schema_filter_pattern"), _pattern(command, "table_name_filter_pattern")
    wanted = _is_ours(command) and (not command.table_types or TABLE in command.table_types)
    found = [
        info
        for info in (_streams(broker, principal) if wanted else ())
        if scope.fullmatch(info.name.scope) and table.fullmatch(info.name.name)
    ]
    found.sort(key=lambda info: info.name)
    columns: list[list[object]] = [
        [DATABASE] * len(found),
        [info.name.scope for info in found],
        [info.name.name for info in found],
        [TABLE] * len(found),
    ]
    if command.include_schema:
        columns.append([pa.schema(info.schema.columns).serialize().to_pybytes() for info in found])
        return pa.table(columns, schema=_TABLES_AND_COLUMNS)
    return pa.table(columns, schema=_TABLES)


def _streams(broker: Broker, principal: Principal) -> Iterator[StreamInfo]:
    return (info for info in broker.store.streams.list() if broker.guard.allows(principal, "read", str(info.name)))


def _is_ours(command: sql.CommandGetDbSchemas | sql.CommandGetTables) -> bool:
    """False if the command asks for another catalog, or for objects without one."""
    return not command.HasField("catalog") or command.catalog == DATABASE


def _pattern(command: Message, name: str) -> re.Pattern[str]:
    """A pattern of LIKE, in which a backslash makes % and _ plain."""
    if not command.HasField(name):
        return re.compile(".*", re.DOTALL)
    fixed = [""]  # what is between the %
    for part in re.findall(r"\\.|[^\\]|\\", getattr(command, name), re.DOTALL):
        if part == "%":
            fixed.append("")
        else:
            fixed[-1] += "." if part == "_" else re.escape(part[-1])
    first, *others = fixed
    if not others:
        return re.compile(first, re.DOTALL)
    # The first place that fits is as good as any other: atomic groups, as trying them all could take for ever.
    middle = "".join(f"(?>.*?{each})" for each in others[:-1])
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)
