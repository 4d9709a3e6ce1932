"""A filter of events: a condition in the SQL of queries, as after WHERE, which DuckDB parses and evaluates.

The condition must depend on the event alone, so that a job that is resumed selects the same events. What the catalog
can decide of it is `EventFilter.condition`; DuckDB evaluates the rest, a batch at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.core.event_condition import AnyTest, EventCondition
from anabranch.core.routing import key_text
from anabranch.core.sql_error import sql_problem, without_kind
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.errors.optional import optional
from anabranch.model.columns import ADDED
from anabranch.model.ids import SegmentId
from anabranch.model.schema import StreamSchema
from anabranch.transfer.filters.condition_text import check_condition_text, too_deep
from anabranch.transfer.filters.conditions import ConditionReader

Tree = Mapping[str, Any]

_ROW: Final = "_anabranch_row"
_KEYWORDS: Final = ("AND", "OR", "NOT", "BETWEEN", "LIKE", "ILIKE", "NULL", "TRUE", "FALSE", "CASE", "WHEN", "THEN")
# These depend on the moment, or on the connection. Without parentheses DuckDB parses these as column names, so they are looked for there.
_MOMENTS: Final = frozenset({"current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"})
_UNSTABLE: Final = """
    SELECT DISTINCT lower(function_name) FROM duckdb_functions()
    WHERE stability IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')
       OR regexp_matches(coalesce(macro_definition, ''), '(?i)current_|random|now\\(|select ')
"""


class EventFilter:
    """A condition on the events of a stream with this schema. It may name the stream's columns, and `_segment`,
    `_offset` and `_appended`; an event matches if it is true. Thread-safe."""

    def __init__(self, where: str, schema: StreamSchema) -> None:
        """Raises InvalidSql if it is not one condition, names something else than columns, or depends on more than the
        event; InvalidArgument; MissingExtra."""
        if not isinstance(where, str) or not where.strip():
            raise InvalidArgument(f"expected a condition such as \"site = 'north'\" as where=, got {where!r:.100}")
        with optional("a copy by a filter", "query"):
            import duckdb
        check_condition_text(where)
        self.where = where.strip()
        self._schema = schema
        self._error: type[Exception] = duckdb.Error
        self._database = duckdb.connect(config={"autoinstall_known_extensions": False})
        # One thread: the job runs several filters side by side. GLOBAL, since a cursor does not inherit the time zone.
        for setting in ("GLOBAL TimeZone = 'UTC'", "threads = 1", "enable_external_access = false"):
            self._database.execute(f"SET {setting}")
        self._database.execute("SET lock_configuration = true")
        added = [field for field in ADDED if field.name not in schema.columns.names]
        self._all = pa.schema([*schema.columns, *added])
        self._check_distinct()
        try:
            self._read()
        except RecursionError as exc:  # of signs or operators
            raise too_deep(where) from exc

    def _read(self) -> None:
        tree = self._parse()
        self._check_stable(tree)
        named = _names(tree)
        self._selected = [name for name in self._all.names if named is None or name.lower() in named]
        own = [field for field in self._schema.columns if field.name in self._selected]
        self.columns = pa.schema(own or [self._schema.columns.field(0)])
        """The columns of the stream to read."""
        self._check_binding()
        read = ConditionReader(self._schema, self._constant)
        # A NUL in a text would end the text when DuckDB reads the tree again.
        self.condition: EventCondition = AnyTest() if "\0" in self.where else read.condition(tree)

    def matching(
        self, segment: SegmentId, batch: pa.RecordBatch, offsets: pa.Array, appended: pa.Array
    ) -> npt.NDArray[np.int64]:
        """The rows of a batch of `columns` that match, in order. `offsets` and `appended` belong to the rows. Raises
        InvalidSql if the condition can't be evaluated for one of them."""
        count = batch.num_rows
        known = {
            "_segment": lambda: pa.repeat(pa.scalar(segment.packed, pa.int64()), count),
            "_offset": lambda: offsets,
            "_appended": lambda: appended,
        }
        own = batch.schema.names
        arrays = [batch.column(name) if name in own else known[name]() for name in self._selected]
        rows = pa.array(np.arange(count, dtype=np.int64))
        table = pa.table([*arrays, rows], names=[*self._selected, _ROW])
        return self._select(table)

    def _select(self, table: pa.Table) -> npt.NDArray[np.int64]:
        with self._database.cursor() as cursor:
            cursor.register("events", table)
            try:
                found = cursor.execute(f"SELECT {_ROW} FROM events WHERE ({self.where}\n)").fetchnumpy()[_ROW]
            except self._error as exc:
                raise self._invalid(str(exc)) from exc
        return np.sort(np.asarray(found, dtype=np.int64))

    def _invalid(self, error: str) -> InvalidSql:
        message, _ = sql_problem(error, keywords=_KEYWORDS)
        return InvalidSql(f"the condition {self.where!r:.200} can't be used: {without_kind(message)}")

    def _check_distinct(self) -> None:
        found: dict[str, str] = {}
        for name in self._all.names:
            other = found.setdefault(name.lower(), name)
            if other != name:
                raise InvalidSql(
                    f"the columns '{other}' and '{name}' differ only in case, so a condition can't tell them apart"
                )

    def _serialized(self, where: str) -> Tree:
        text = f"SELECT 1 FROM events WHERE ({where}\n)"
        row = self._database.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
        assert row is not None
        found: Tree = json.loads(row[0])
        return found

    def _parse(self) -> Tree:
        """The condition as DuckDB's parser returns it."""
        parsed = self._serialized(self.where)
        if parsed["error"]:
            raise self._invalid(self._syntax_error() or str(parsed["error_message"]))
        frame, plain = _frame(parsed), _frame(self._serialized("true"))
        if frame != plain:
            raise InvalidSql(f"expected one condition, as after WHERE, got {self.where!r:.200}")
        tree: Tree = parsed["statements"][0]["node"]["where_clause"]
        for node in _nodes(tree):
            if node.get("class") in ("SUBQUERY", "WINDOW", "PARAMETER"):
                raise InvalidSql(
                    f"the condition {self.where!r:.200} can't be used: it may depend only on the event, not on a "
                    f"{str(node['class']).lower()}"
                )
        return tree

    def _syntax_error(self) -> str | None:
        """DuckDB's message for the condition, which says where it fails."""
        try:
            self._database.execute(f"SELECT 1 WHERE ({self.where}\n)")
        except self._error as exc:
            return str(exc)
        return None

    def _check_stable(self, tree: Tree) -> None:
        unstable = {row[0] for row in self._database.execute(_UNSTABLE).fetchall()}
        own = {name.lower() for name in self._all.names}
        for node in _nodes(tree):
            called = str(node.get("function_name", "")).lower()
            named = node.get("column_names", ())
            column = str(named[0]).lower() if len(named) == 1 else ""
            changes = called in unstable or (called == "age" and _arguments(node) == 1)  # the age today
            found = called if changes else column if column in _MOMENTS - own else None
            if found is not None:
                raise InvalidSql(
                    f"the condition {self.where!r:.200} can't be used: the result of {found} changes from one "
                    "evaluation to the next; write its value instead"
                )

    def _check_binding(self) -> None:
        """Evaluate the condition for one event of nulls, since constants are converted only when an event is
        evaluated."""
        nothing = pa.table([pa.nulls(1, field.type) for field in self._all], schema=self._all)
        with self._database.cursor() as cursor:
            cursor.register("events", nothing)
            try:
                cursor.execute(f"SELECT 1 FROM events WHERE ({self.where}\n)").fetchall()
            except self._error as exc:
                raise self._invalid(str(exc)) from exc

    def _constant(self, tree: Tree) -> tuple[str, Any]:
        """The type and the value of an expression without columns; a time as µs since 1970 UTC."""
        statement = self._serialized("true")
        node = statement["statements"][0]["node"]
        node["select_list"], node["where_clause"] = [tree], None
        node["from_table"] = {"type": "EMPTY", "alias": "", "sample": None}
        try:
            row = self._database.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(statement)]).fetchone()
            assert row is not None
            text = str(row[0]).rstrip(";")
            kind = self._database.execute(f"SELECT typeof(x) FROM ({text}) AS t(x)").fetchone()
            assert kind is not None
            micros = kind[0] in ("VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
            plain = self._database.execute(f"SELECT x FROM ({text}) AS t(x)").fetchone() if not micros else None
            if not micros:
                assert plain is not None
                return kind[0], plain[0]
            both = self._database.execute(
                f"SELECT x::VARCHAR, epoch_us(try_cast(x AS TIMESTAMPTZ)) FROM ({text}) AS t(x)"
            ).fetchone()
            assert both is not None
            return kind[0], both
        except self._error:
            return "", None  # nothing is decided by it


def keys_condition(keys: Sequence[Any], schema: StreamSchema) -> str:
    """The condition that the routing key is one of these. Raises InvalidArgument for a stream without keys, and
    InvalidKey."""
    if isinstance(keys, str) or not keys:
        raise InvalidArgument(f"keys= takes a list of routing keys, got {keys!r:.100}")
    if schema.key is None:
        raise InvalidArgument("the stream has no key column to select by; use where=")
    kind = schema.columns.field(schema.key).type
    column = '"' + schema.key.replace('"', '""') + '"'
    parts = [f"{column} IN ({', '.join(_literal(key, kind) for key in keys if key is not None)})"]
    if None in keys:
        parts = [f"{column} IS NULL", *(parts if any(key is not None for key in keys) else [])]
    return " OR ".join(parts)


def both_conditions(where: str | None, keys: Sequence[Any], schema: StreamSchema) -> str:
    """The condition for a caller's arguments, in the form of `EventFilter.where`. Raises InvalidArgument, InvalidKey."""
    chosen = [where.strip() if isinstance(where, str) else where] if where is not None else []
    if not isinstance(keys, Sequence) or isinstance(keys, str) or keys:
        chosen.append(keys_condition(keys, schema))
    return chosen[0] if len(chosen) == 1 else " AND ".join(f"({each}\n)" for each in chosen)


def _literal(key: Any, kind: pa.DataType) -> str:
    text = key_text(key)
    assert text is not None
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        try:
            return str(pa.scalar(key, kind).as_py()).lower()
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as exc:
            raise InvalidArgument(f"expected keys of type {kind}, as the key column has it; got {key!r:.100}") from exc
    if pa.types.is_date(kind):
        if not isinstance(key, date):
            raise InvalidArgument(f"expected keys of type {kind}, as the key column has it; got {key!r:.100}")
        return f"DATE '{key.isoformat()}'"
    return "'" + text.replace("'", "''") + "'"


def _arguments(call: Tree) -> int:
    """The number of a call's arguments, under the name that this version of DuckDB gives them."""
    return len(call.get("arguments", call.get("children", ())))


def _nodes(tree: Any) -> Iterator[Tree]:
    """All objects of a parsed condition."""
    if isinstance(tree, dict):
        yield tree
        for each in tree.values():
            yield from _nodes(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from _nodes(each)


def _frame(parsed: Tree) -> Any:
    """A parsed statement without its condition."""
    statements = parsed["statements"]
    return [{**each, "node": {**each["node"], "where_clause": None}, "named_param_map": None} for each in statements]


def _names(tree: Tree) -> set[str] | None:
    """The names of all columns in a condition, in lower case; None for all columns of the stream."""
    found: set[str] = set()
    for node in _nodes(tree):
        if node.get("class") == "STAR":
            return None
        found.update(str(name).lower() for name in node.get("column_names", ()))
    return found
