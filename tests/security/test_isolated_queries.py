"""Queries in processes of their own: what DuckDB itself can't stop ends with its process, and harms no other query."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Closed, InvalidSql, QueryLimitExceeded, StoreUnavailable
from anabranch.query import isolated
from anabranch.query.isolated import IsolatedQueries, IsolatedResult
from anabranch.query.names import named_streams
from anabranch.query.sandbox import QueryLimits
from tests.parameters import rest_is_slow
from tests.waiting import until


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ab.Store]:
    with ab.connect(tmp_path_factory.mktemp("isolated") / "store", create=True) as opened:
        opened.scopes.create("s")
        for name in ("s/numbers", "s/other"):
            opened.streams.create(name, schema=pa.schema([("n", pa.int64())]))
            opened.writer(name).write_batch(pa.table({"n": list(range(100))})).result()
        yield opened


@pytest.fixture(scope="module")
def queries(store: ab.Store) -> Iterator[IsolatedQueries]:
    made = IsolatedQueries(store, QueryLimits(memory_bytes=128 << 20, spill_bytes=8 << 20, seconds=0.8), processes=1)
    yield made
    made.close()


def run(queries: IsolatedQueries, store: ab.Store, sql: str, allowed: str = "s.numbers") -> list[dict[str, object]]:
    result = queries.run(sql, named_streams(store, allowed))
    return [row for batch in result for row in batch.to_pylist()]


def _process(result: IsolatedResult) -> int:
    assert result._process is not None
    return result._process._process.pid


def test_a_query_sees_the_streams_that_it_may_read_and_no_others(store: ab.Store, queries: IsolatedQueries) -> None:
    assert run(queries, store, "SELECT count(*) AS n FROM s.numbers WHERE n > 9") == [{"n": 90}]
    assert run(queries, store, "SELECT count(*) AS n FROM anabranch.s.numbers") == [{"n": 100}]
    assert run(queries, store, "SHOW TABLES") == [{"name": "s.numbers"}]
    for sql, said in (
        ("FROM s.other", "unknown stream or table"),
        ('FROM "s/other"', "unknown stream or table"),
        ("FROM query('FROM s.other')", "it runs a text as SQL, which is not checked"),
    ):
        with pytest.raises(InvalidSql, match=said) as refused:
            run(queries, store, sql)
        assert "did you mean s.other" not in str(refused.value)
    with pytest.raises(InvalidSql, match="can't use files"):
        run(queries, store, "FROM read_text('/etc/passwd')")


def test_parameters_and_columns_are_found_without_running(store: ab.Store, queries: IsolatedQueries) -> None:
    streams, sql = named_streams(store, "s.numbers"), "SELECT n + ? AS x FROM s.numbers WHERE n < $2"
    found = queries.run(sql, streams, describe=True)
    assert (list(found), found.schema, found.parameters) == ([], pa.schema([("x", pa.int64())]), 2)
    result = queries.run(sql, streams, parameters=pa.table({"1": [5], "2": [2]}))
    assert [row for batch in result for row in batch.to_pylist()] == [{"x": 5}, {"x": 6}]


@pytest.mark.parametrize(
    "sql",
    rest_is_slow(
        [
            "SELECT levenshtein(repeat('x', 1000000), repeat('y', 1000000))",  # does not stop when it is interrupted
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
        ]
    ),
)
def test_a_query_that_does_not_end_is_killed_at_its_deadline(
    store: ab.Store, queries: IsolatedQueries, sql: str
) -> None:
    with pytest.raises(QueryLimitExceeded, match=r"stopped after 0\.8s") as exceeded:
        run(queries, store, sql)
    assert exceeded.value.limit == "time"
    assert run(queries, store, "SELECT 1 AS a") == [{"a": 1}]


@pytest.mark.parametrize("sql", ["SELECT repeat('x', 2000000000)", "SELECT len(range(1000000000))"])
def test_memory_that_duckdb_does_not_count_is_limited(store: ab.Store, queries: IsolatedQueries, sql: str) -> None:
    with pytest.raises(QueryLimitExceeded) as exceeded:
        run(queries, store, sql)
    assert exceeded.value.limit == "memory"
    assert run(queries, store, "SELECT 1 AS a") == [{"a": 1}]


def test_a_process_that_dies_fails_its_query_alone(store: ab.Store, queries: IsolatedQueries) -> None:
    result = queries.run("FROM range(100000000)", {})
    os.kill(_process(result), signal.SIGKILL)
    with pytest.raises(QueryLimitExceeded, match="process of the query ended"):
        list(result)
    assert run(queries, store, "SELECT 1 AS a") == [{"a": 1}]


def test_a_process_that_stops_within_a_batch_is_killed_at_the_deadline(
    store: ab.Store, queries: IsolatedQueries
) -> None:
    result = queries.run("SELECT repeat('x', 1000) AS x FROM range(20000)", named_streams(store, "s.numbers"))
    assert result._process is not None
    assert result._process._pipe.poll(10)  # it has begun to send a batch, which the pipe can't hold whole
    process = _process(result)
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(QueryLimitExceeded, match=r"stopped after 0\.8s"):
        list(result)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert run(queries, store, "SELECT count(*) AS n FROM s.numbers") == [{"n": 100}]


def test_a_query_whose_caller_is_gone_is_ended(store: ab.Store, queries: IsolatedQueries) -> None:
    with pytest.raises(Closed):
        list(queries.run("SELECT sleep_ms(100000)", {}, over=lambda: True))
    result = queries.run("FROM range(100000000)", {})
    process = _process(result)
    result.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_tables_of_one_query_are_gone_in_the_next(store: ab.Store, queries: IsolatedQueries) -> None:
    assert run(queries, store, "CREATE TABLE t AS SELECT 1 AS a; FROM t") == [{"a": 1}]
    with pytest.raises(InvalidSql, match="unknown stream or table 't'"):
        run(queries, store, "FROM t")


def test_a_store_in_memory_is_not_queried_by_another_process() -> None:
    with ab.connect("memory://", create=True) as store, pytest.raises(StoreUnavailable, match="in memory"):
        IsolatedQueries(store, QueryLimits(memory_bytes=128 << 20)).run("SELECT 1", {})


def test_processes_that_end_leave_no_folders(store: ab.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    queries = IsolatedQueries(store, QueryLimits(memory_bytes=128 << 20, spill_bytes=8 << 20, seconds=60))
    for _ in range(2):
        assert run(queries, store, "SELECT count(*) AS n FROM s.numbers") == [{"n": 100}]
    # The database of the next query is opened after the answer to the last one.
    until(lambda: len(list(tmp_path.rglob("anabranch-query-*"))) == 1)
    for _ in range(2):
        assert queries.translate("SELECT n FROM s.numbers", "trino", "query").startswith("SELECT")
    until(lambda: len(list(tmp_path.rglob("anabranch-query-*"))) == 1)
    queries.close()
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_is_ended_leaves_no_spilled_files(
    store: ab.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    queries = IsolatedQueries(store, QueryLimits(memory_bytes=128 << 20, spill_bytes=1 << 30, seconds=60))
    spilled = threading.Event()
    sorting = "SELECT a.range AS x FROM range(100000) a, range(100000) b ORDER BY hash(a.range + b.range)"

    def ask() -> None:
        with suppress(Closed):
            queries.run(sorting, {}, over=spilled.is_set)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: any(each.is_file() for each in tmp_path.rglob("*")))
    spilled.set()
    asking.join()
    assert list(tmp_path.iterdir()) == []
    queries.close()


def test_a_process_that_does_not_start_is_ended(
    store: ab.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(isolated, "_START_S", 0.0)
    started: list[subprocess.Popen[bytes]] = []

    def popen(*command: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*command, **options))
        return started[-1]

    monkeypatch.setattr(isolated, "subprocess", SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL))
    with pytest.raises(StoreUnavailable, match="did not start"):
        IsolatedQueries(store, QueryLimits(memory_bytes=128 << 20)).run("SELECT 1", {})
    assert started[0].returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_queries_run_in_a_process_with_more_than_1024_open_files(store: ab.Store) -> None:
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, min(2_048, most)), most))
    queries = IsolatedQueries(store, QueryLimits(memory_bytes=128 << 20, spill_bytes=8 << 20, seconds=60))
    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (allowed, most))
        for _ in range(1_100):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        assert run(queries, store, "SELECT 1 AS a") == [{"a": 1}]
        queries.close()
