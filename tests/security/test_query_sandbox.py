"""What a query may not do that isn't allowed to use files, and where its limits stop it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument, InvalidSql, QueryLimitExceeded, TooLarge
from anabranch.query import Query, QueryLimits

_MEMORY = 64 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "store", create=True) as opened:
        opened.scopes.create("s")
        opened.streams.create("s/numbers", schema=pa.schema([("n", pa.int64())]))
        opened.writer("s/numbers").write_batch(pa.table({"n": list(range(100))})).result()
        yield opened


def rows(query: Query, sql: str, *parameters: object) -> list[dict[str, object]]:
    result = query.run(sql, parameters)
    return [] if result is None else [row for batch in result for row in batch.to_pylist()]


_READS = (
    "FROM read_csv('{file}')",
    "FROM '{file}'",
    "FROM read_text('{file}')",
    "FROM read_blob('{folder}/*')",
    "FROM read_json('{file}')",
    "FROM read_parquet('{file}')",
    "FROM parquet_metadata('{file}')",
    "FROM sniff_csv('{file}')",
    "FROM glob('{folder}/*')",
    "FROM read_duckdb('{file}')",
    "FROM read_text('http://localhost:1/x')",
    "FROM read_parquet('s3://bucket/key.parquet')",
    "FROM duckdb_secrets()",
    "FROM duckdb_extensions()",
    "SELECT getenv('HOME')",
    "FROM query('FROM read_text(''{file}'')')",
    "CREATE VIEW v AS FROM read_text('{file}'); FROM v",
    "CREATE MACRO m(x) AS TABLE FROM read_text(x); FROM m('{file}')",
    "WITH x AS (FROM read_text('{file}')) FROM x",
    "EXPLAIN ANALYZE FROM read_text('{file}')",
    "FROM postgres_scan('host=localhost', 'a', 'b')",
    "FROM sqlite_scan('{file}', 'a')",
    "FROM file",
)
_STATEMENTS = (
    "COPY (SELECT 1) TO '{new}'",
    "COPY s.numbers TO '{new}' (FORMAT parquet)",
    "COPY (PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)) TO '{new}'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{new}'",
    "EXPLAIN ANALYZE COPY (PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)) TO '{new}'",
    "EXPLAIN /* */ ANALYZE COPY (SELECT 1) TO '{new}'",
    "EXPLAIN (ANALYZE, FORMAT json) COPY (SELECT 1) TO '{new}'",
    "PREPARE p AS COPY (SELECT 1) TO '{new}'",
    "PREPARE p AS PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)",
    "EXECUTE p",
    "SELECT 1; COPY (SELECT 1) TO '{new}'",
    "/* x */ COPY (SELECT 1) TO '{new}'",
    "EXPORT DATABASE '{new}'",
    "IMPORT DATABASE '{folder}'",
    "COPY FROM DATABASE a TO b",
    "ATTACH '{new}'",
    "ATTACH ':memory:' AS other",
    "DETACH other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{file}'",
    "UPDATE EXTENSIONS",
    "SET enable_external_access = true",
    "SET memory_limit = '100GB'",
    "SET VARIABLE x = 1",
    "RESET memory_limit",
    "USE memory",
    "PRAGMA memory_limit = '100GB'",
    "PRAGMA enable_profiling",
    "PRAGMA profiling_output = '{new}'",
    "PRAGMA database_list",
    "CALL enable_logging()",
    "CHECKPOINT",
    "VACUUM",
    "CREATE SECRET x (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "CREATE PERSISTENT SECRET x (TYPE http)",
    "DROP SECRET x",
)


_SHOWN_BY_NAME = (
    *(
        "FROM duckdb_databases()",
        "SHOW DATABASES",
        "FROM duckdb_variables()",
        "FROM duckdb_logs",
        "FROM duckdb_memory()",
    ),
    *(
        "FROM duckdb_external_file_cache()",
        "FROM duckdb_secret_types()",
        "FROM pragma_user_agent()",
        "SHOW search_path",
    ),
    *("FROM pragma_database_size()", "SELECT version(), current_database(), current_query()", "FROM duckdb_views()"),
)


@pytest.mark.parametrize("sql", _READS)
def test_no_file_or_address_is_read(store: ab.Store, tmp_path: Path, sql: str) -> None:
    file = tmp_path / "secret.txt"
    file.write_text("the secret")
    with Query(store) as query, pytest.raises(InvalidSql) as refused:
        assert rows(query, sql.format(file=file, folder=tmp_path))
    assert "\n" not in str(refused.value) and "the secret" not in str(refused.value)


@pytest.mark.parametrize("sql", _STATEMENTS)
def test_no_statement_writes_attaches_loads_or_sets(store: ab.Store, tmp_path: Path, sql: str) -> None:
    """Not even in the folder to which queries spill, where DuckDB itself allows it."""
    with Query(store) as query:
        places = {
            "new": f"{query._opened.spill}/new",
            "file": f"{query._opened.spill}/x",
            "folder": query._opened.spill,
        }
        with pytest.raises(InvalidSql) as refused:
            rows(query, sql.format(**places))
        assert "\n" not in str(refused.value)
        assert list(Path(query._opened.spill).iterdir()) == []
        assert rows(query, "SELECT count(*) AS n FROM s.numbers") == [{"n": 100}]


def test_no_setting_that_is_a_path_is_shown(store: ab.Store) -> None:
    with Query(store) as query:
        held = query._opened.connection.execute("SELECT name, value FROM duckdb_settings()").fetchall()
        paths = [
            name for name, value in held if "/" in str(value) and name not in ("duckdb_api", "TimeZone", "timezone")
        ]
        assert paths == ["allowed_directories", "temp_directory"], "the other folders are named nowhere"
        for name in (*paths, "secret_directory", "home_directory", "extension_directory"):
            for sql in (
                f"SELECT current_setting('{name}')",
                f"SELECT current_setting /* */ ('{name}')",
                f"SELECT '{name}'.current_setting()",
                f"SHOW {name}",
                f'FROM (SHOW "{name}")',
                f"FROM duckdb_settings() WHERE name = '{name}'",
                f"FROM pg_settings WHERE name = '{name}'",
            ):
                with pytest.raises(InvalidSql, match="is refused"):
                    rows(query, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM query('FROM duckdb_' || 'settings()')",
        "FROM query_table('pg_' || 'settings')",
        "FROM QUERY /* /* */ */ ('FROM pg_' || 'settings')",
        "FROM \"query\"\u2003\u200b('FROM pg_' || 'settings')",
        "FROM system.main.query -- x\n('FROM pg_' || 'settings')",
        "FROM json_execute_serialized_sql(json_serialize_sql('FROM pg_' || 'settings'))",
        "CREATE MACRO m(x) AS TABLE FROM query(x); FROM m('FROM pg_' || 'settings')",
        "FROM duckdb_temporary_files()",
    ],
)
def test_no_text_is_run_as_sql_that_shows_settings(store: ab.Store, sql: str) -> None:
    with Query(store) as query, pytest.raises(InvalidSql, match="is refused"):
        rows(query, sql)


@pytest.mark.parametrize("statement", _SHOWN_BY_NAME)
def test_what_describes_the_database_names_no_folder(store: ab.Store, statement: str) -> None:
    with Query(store) as query:
        found = str(rows(query, statement))
        assert query._opened.spill not in found and str(Path.home()) not in found and str(Path.cwd()) not in found


def test_tables_of_its_own_and_explanations_are_allowed(store: ab.Store) -> None:
    with Query(store) as query:
        assert rows(
            query, "CREATE TABLE t AS FROM s.numbers; INSERT INTO t VALUES (7); SELECT count(*) AS n FROM t"
        ) == [{"n": 101}]
        assert rows(query, "PIVOT (SELECT n % 2 AS odd, n FROM s.numbers) ON odd USING count(n)") == [
            {"0": 50, "1": 50}
        ]
        assert rows(query, "EXPLAIN SELECT n FROM s.numbers")
        assert rows(query, "EXPLAIN (ANALYZE, FORMAT json) SELECT n FROM s.numbers")
        assert rows(query, "SELECT n FROM s.numbers WHERE n > $1 AND n < $2", 7, 9) == [{"n": 8}]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
        "SELECT count(*) FROM s.numbers a, s.numbers b, range(1000000000) c, range(1000000000) d WHERE a.n + b.n + random() < 0",
        "SELECT sleep_ms(1000000)",
    ],
)
def test_an_endless_query_is_stopped_at_its_deadline(store: ab.Store, sql: str) -> None:
    with Query(store, limits=QueryLimits(seconds=0.3)) as query:
        with pytest.raises(QueryLimitExceeded, match=r"stopped after 0\.3s") as exceeded:
            rows(query, sql)
        assert exceeded.value.limit == "time"
        assert rows(query, "SELECT 1 AS a") == [{"a": 1}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(i) FROM range(1000000000) t(i)",
        "SELECT string_agg(repeat('x', 1000), '') FROM range(10000000)",
        "SELECT a.range, b.range FROM range(1000000) a, range(1000000) b ORDER BY 1 DESC, 2",
        "CREATE TABLE t AS SELECT random() AS r FROM range(1000000000)",
    ],
)
def test_a_query_gets_no_more_memory_and_disk_than_its_limit(store: ab.Store, sql: str) -> None:
    with Query(store, limits=QueryLimits(memory_bytes=_MEMORY, spill_bytes=8 << 20)) as query:
        with pytest.raises(QueryLimitExceeded, match="needs more memory") as exceeded:
            rows(query, sql)
        assert exceeded.value.limit == "memory"
        assert rows(query, "SELECT 1 AS a") == [{"a": 1}]


def test_limits_and_texts_are_checked(store: ab.Store) -> None:
    with pytest.raises(InvalidArgument, match="16 MiB"):
        QueryLimits(memory_bytes=1)
    with pytest.raises(InvalidArgument, match="above 0 s"):
        QueryLimits(seconds=0)
    with Query(store) as query:
        with pytest.raises(TooLarge):
            rows(query, "SELECT '" + "x" * 300_000 + "'")
        with pytest.raises(InvalidSql, match="depth"):
            rows(query, "SELECT " + "(" * 10_000 + "1" + ")" * 10_000)
