"""Keeps a query to the streams: no file, no network, no extension, no setting, and limits of memory, disk and time.

DuckDB's own switches close its file system, its extensions and its settings. They leave open the folder to which it
spills, which a COPY could fill and read, so a query may also consist only of statements that read, or that change
tables of its own. Some functions of DuckDB neither stop when they are interrupted nor count their memory; where the
author of a query isn't trusted, run it in a process of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final

from anabranch import limits
from anabranch.core.sql_text import check_sql_text
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.errors.optional import optional
from anabranch.model.seconds import wait_seconds

with optional("a query", "query"):
    import duckdb

DATABASE: Final = "anabranch"  # so that a table may be written anabranch.scope.stream
_ALLOWED: Final = frozenset(
    {"SELECT", "CREATE", "INSERT", "UPDATE", "DELETE", "MERGE_INTO", "ALTER", "DROP", "TRANSACTION", "RELATION"}
)
# A statement that contains a PIVOT, such as a COPY, has no kind of its own, so its first word decides.
_AROUND_PIVOT: Final = frozenset({"PIVOT", "PIVOT_WIDER", "FROM", "WITH", "SELECT", "CREATE", "INSERT", "("})
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?:\([^()]*\)\s*)?", re.IGNORECASE)
_FIRST_WORD = re.compile(r"\s*(\w+|\()")
_SECRET = re.compile(r"\bSECRETS?\b", re.IGNORECASE)
# Settings that hold paths of this machine, and what shows all settings. SHOW shows one by its name alone.
_SETTINGS = re.compile(
    r"\b(?:current_setting|duckdb_settings|pg_settings|duckdb_temporary_files|allowed_directories|allowed_paths"
    r"|(?:temp|secret|home|extension|extension_repository)_directory|extension_directories|file_search_path"
    r"|log_query_path|profile_output)\b",
    re.IGNORECASE,
)
# These run a text as SQL. A comment behind such a name could hide the parenthesis.
_DYNAMIC = re.compile(
    r'\b(query|query_table|json_execute_serialized_sql)"?[\x00-\x20\x7f-\U0010ffff]*(?:\(|/\*|--)', re.IGNORECASE
)
# In this order: the last two make the others final.
_CLOSED: Final = {
    **dict.fromkeys(("secret_directory", "home_directory", "extension_directory"), "'none'"),  # folders of this machine
    **dict.fromkeys(("autoload_known_extensions", "allow_community_extensions", "enable_progress_bar"), "false"),
    **dict.fromkeys(("python_enable_replacements", "enable_external_access"), "false"),
    "lock_configuration": "true",
}
_REFUSED: Final = "is refused: a query can't use files, extensions or settings"


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What a query may use. None: the machine's memory as DuckDB sees it, its disk, any time."""

    memory_bytes: int | None = None
    spill_bytes: int | None = None
    """Bytes on disk to which large sorts and joins spill."""
    seconds: float | None = None
    """From the start of the query until its last row is read."""

    def __post_init__(self) -> None:
        if self.memory_bytes is not None and self.memory_bytes < limits.QUERY_MEMORY_BYTES_MIN:
            raise InvalidArgument(
                f"a query needs {limits.QUERY_MEMORY_BYTES_MIN >> 20} MiB of memory at least, not {self.memory_bytes} bytes"
            )
        if self.seconds is not None and wait_seconds("seconds", self.seconds) == 0:
            raise InvalidArgument(f"expected a time limit above 0 s for a query, got {self.seconds}")


class QueryDatabase:
    """A database in memory, and the folder to which it spills. For one `Query`, which closes it."""

    def __init__(self, *, allow_files: bool, limits_: QueryLimits) -> None:
        """With `allow_files`, queries may use files."""
        self.spill = mkdtemp(prefix="anabranch-query-")
        self.connection = duckdb.connect(config={"autoinstall_known_extensions": False})
        execute = self.connection.execute
        execute("SET TimeZone = 'UTC'")
        execute(f"ATTACH ':memory:' AS {DATABASE}")
        execute(f"USE {DATABASE}")
        # Queries may always use files of the directory to which large sorts and joins spill.
        execute("SET temp_directory = ?", [self.spill])
        if limits_.memory_bytes is not None:
            execute("SET memory_limit = ?", [f"{limits_.memory_bytes}B"])
        if limits_.spill_bytes is not None:
            execute("SET max_temp_directory_size = ?", [f"{limits_.spill_bytes}B"])
        for setting, value in () if allow_files else _CLOSED.items():
            execute(f"SET {setting} = {value}")

    def close(self) -> None:
        """Close the database and remove the folder."""
        self.connection.close()
        rmtree(self.spill, ignore_errors=True)


def check_statements(database: duckdb.DuckDBPyConnection, sql: str, *, advice: str = "") -> None:
    """Refuse statements that do more than read streams and keep tables of their own; `advice` says how to allow such
    statements. Raises InvalidSql; syntax errors are DuckDB's own."""
    refused = _REFUSED + advice
    check_sql_text(sql, what="the query", bytes_max=limits.SQL_BYTES_MAX)
    if (found := _SETTINGS.search(sql)) is not None:
        raise InvalidSql(f"{found[0]} {refused}")
    if (found := _DYNAMIC.search(sql)) is not None:
        raise InvalidSql(f"{found[1]}(…) {refused}; it runs a text as SQL, which is not checked: write that SQL itself")
    for statement in database.extract_statements(sql):
        _check(database, statement, refused)


def _check(database: duckdb.DuckDBPyConnection, statement: duckdb.Statement, refused: str) -> None:
    try:
        kind, text = str(statement.type).rpartition(".")[2], str(statement.query)
    except ValueError as exc:  # a kind of statement that DuckDB's client doesn't know, such as UPDATE EXTENSIONS
        raise InvalidSql(f"{_first_word(str(statement.query))} {refused}") from exc
    word = _first_word(text)
    if word == "EXPLAIN":  # judged by what it explains: EXPLAIN ANALYZE runs it
        inner = _EXPLAIN.sub("", text, count=1)
        if inner == text:  # a comment stands between its words, for example
            raise InvalidSql("write EXPLAIN [ANALYZE] and then the query, without comments between them")
        for explained in database.extract_statements(inner):
            _check(database, explained, refused)
        return
    allowed = word in _AROUND_PIVOT if kind == "MULTI" else kind in _ALLOWED
    if not allowed or (kind in ("CREATE", "DROP") and _SECRET.search(text)):
        raise InvalidSql(f"{word} {refused}")


def _first_word(text: str) -> str:
    first = _FIRST_WORD.match(text)
    return "the statement" if first is None else first[1].upper()
