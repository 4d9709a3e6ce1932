"""Says in one line what is wrong with a query, in terms of streams rather than of DuckDB's catalog."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Final

from anabranch.core.sql_error import sql_problem, without_kind
from anabranch.errors import AnabranchError, InvalidSql, QueryLimitExceeded, ScopeRenamed, StreamRenamed
from anabranch.model.amounts import duration_text
from anabranch.model.names import StreamName
from anabranch.query.sandbox import DATABASE, QueryLimits
from anabranch.store import Store

_NO_TABLE = re.compile(r'Table with name "?([^"!]+?)"? does not exist')
# Schemas and databases of DuckDB itself. Streams in scopes of these names are written "scope/name" only.
DATABASE_SCHEMAS: Final = frozenset({"information_schema", "pg_catalog", "temp", "system"})
_KEYWORDS: Final = (
    *("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "JOIN", "WITH", "UNION", "DISTINCT"),
    *("EXPLAIN", "DESCRIBE", "SHOW", "VALUES", "WINDOW", "QUALIFY", "BETWEEN"),
)
_READ_ONLY = (
    "a query can't change a stream; use the verbs: anabranch write, anabranch replace, anabranch stream truncate, "
    "anabranch stream delete"
)
_CHANGES_A_VIEW = re.compile(
    r"is of type View|is not an table|from base table|update base table|modify view|Can only \w+ .*base table"
)
_UNKNOWN = re.compile(r"unknown stream or table '([^']*)'")
FILES_ADVICE: Final = "; to let it, pass --allow-files, in Python allow_files=True"
_NO_FILES = re.compile(r"operations are disabled by configuration|disabled through configuration")


def query_error(store: Store, error: str, allowed: Collection[StreamName] | None = None) -> InvalidSql:
    """The error for DuckDB's message. With `allowed`, it names no other streams, and not the option that allows
    files."""
    message, line = sql_problem(error, keywords=_KEYWORDS)
    if missing := _NO_TABLE.search(error):
        return InvalidSql(_unknown(store, missing[1], allowed))
    if _CHANGES_A_VIEW.search(message):
        return InvalidSql(_READ_ONLY, line)
    if _NO_FILES.search(message) and allowed is not None:
        return InvalidSql("a query can't use files, the network or extensions", line)
    if _NO_FILES.search(message):
        return InvalidSql(
            without_kind(message) + FILES_ADVICE,
            line,
        )
    return InvalidSql(message, line)


def over_memory(error: str) -> QueryLimitExceeded:
    """The error for DuckDB's message that memory, or the disk it may spill to, is used up."""
    message = without_kind(sql_problem(error).message).partition(" Possible solutions")[0]
    return QueryLimitExceeded(
        f"the query needs more memory than it may use ({message}); select fewer rows or columns, or raise its limit",
        "memory",
    )


def over_time(limits: QueryLimits) -> QueryLimitExceeded:
    """The error for a query that was stopped at its deadline."""
    return QueryLimitExceeded(
        f"the query was stopped after {duration_text(round((limits.seconds or 0) * 1e6))}, the time it may take; select fewer "
        "rows, or raise its limit",
        "time",
    )


def unknown_table(error: InvalidSql) -> str | None:
    """The table that a query names although there is none, as text."""
    found = _UNKNOWN.search(str(error))
    return found and found[1]


def _unknown(store: Store, table: str, allowed: Collection[StreamName] | None) -> str:
    """The message for a table that is not a stream: what its stream is called now, or similar names."""
    table = table.removeprefix(f"{DATABASE}.")
    for text in (table, table.replace(".", "/", 1)) if allowed is None else ():
        try:
            store.streams.find(StreamName.parse(text))
        except (StreamRenamed, ScopeRenamed) as renamed:
            return str(renamed)
        except AnabranchError:
            continue
    alike = get_close_matches(table, stream_tables(store, allowed), n=3)
    hint = f"; did you mean {' or '.join(alike)}?" if alike else "; a stream is scope.name, and SHOW TABLES lists them"
    return f"unknown stream or table '{table}'{hint}"


def stream_tables(store: Store, allowed: Collection[StreamName] | None = None) -> Sequence[str]:
    """The names of all streams, or of those that are allowed, as a query writes them."""
    names = [info.name for info in store.streams.list()] if allowed is None else sorted(allowed)
    return [f'"{name}"' if name.scope.lower() in DATABASE_SCHEMAS else f"{name.scope}.{name.name}" for name in names]
