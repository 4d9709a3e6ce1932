"""A PostgreSQL server to measure on, its catalogs, and clients as separate processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.model.ids import LogId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.schema import RAW
from anabranch.runtime.ports import Runtime
from bench.result import BenchmarkSetting
from tests.postgres_server import Server

GIVEN = "ANABRANCH_BENCH_POSTGRES"
SETTINGS = ("shared_buffers=1GB", "max_wal_size=4GB", "min_wal_size=1GB", "checkpoint_timeout=15min")
_PROCESSES = multiprocessing.get_context("spawn")

# A client is called with a catalog's address, its number and its arguments; it returns a function that does one round
# of work and returns the amount.
Client = Callable[..., Callable[[], int]]


@contextmanager
def server(setting: BenchmarkSetting) -> Iterator[str]:
    """Yields the address of a server: the one in the environment, else one from the wheel on the measured disk."""
    if given := os.environ.get(GIVEN):
        yield given
        return
    made = Server(*SETTINGS, where=setting.folder.parents[1])
    try:
        yield made.url
    finally:
        made.remove()


@contextmanager
def catalog_at(url: str, schema: str) -> Iterator[str]:
    """Yields the address of a new catalog on a server; it is dropped afterwards."""
    address = f"{url}{'&' if '?' in url else '?'}schema={schema}"
    PostgresCatalog(address, Runtime()).close()
    try:
        yield address
    finally:
        run(address, f"drop schema {schema} cascade")


def run(address: str, *statements: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """Runs statements in a catalog's schema; returns the rows of the last."""
    base, _, schema = address.rpartition("schema=")
    with psycopg.connect(base.rstrip("?&"), autocommit=True) as database:
        database.execute(f"set search_path to {schema}".encode())
        for statement in statements:
            cursor = database.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def load_streams(address: str, streams: int, segments: int) -> None:
    """Fills an empty catalog with raw streams `bench/0`, `bench/1`, … of so many segments each, whose logs are
    numbered from 1, by stream and segment."""
    ranges = FULL_KEY_RANGE.split(segments)
    values = {
        "streams": streams,
        "segments": segments,
        "columns": RAW.to_bytes(),
        "key": RAW.key,
        "time": RAW.time,
        "lows": [f"{each.low:017x}" for each in ranges],
        "highs": [f"{each.high:017x}" for each in ranges],
    }
    run(address, "insert into scopes values ('bench', '{}', 0)")
    run(
        address,
        """insert into streams select n, 'bench', n::text, 1, '{}', 0, false, 1, 0, %(segments)s
           from generate_series(0, %(streams)s - 1) as n""",
        values=values,
    )
    run(
        address,
        """insert into schemas select n, 1, %(columns)s, %(key)s::text, %(time)s::text, true
           from generate_series(0, %(streams)s - 1) as n""",
        values=values,
    )
    every = "from generate_series(0, %(streams)s - 1) as n, generate_series(0, %(segments)s - 1) as s order by n, s"
    run(
        address,
        f"insert into segments select n, s, (%(lows)s::text[])[s + 1], (%(highs)s::text[])[s + 1], null, 0 {every}",
        values=values,
    )
    run(
        address,
        f"""insert into logs (id, stream, length, sealed, fence, low_water, size, appended_at)
            select n * %(segments)s + s + 1, n, 0, false, 0, 0, 0, 0 {every}""",
        values=values,
    )
    run(address, f"insert into spans select n, s, 0, n * %(segments)s + s + 1, 0, null {every}", values=values)
    run(address, "select setval(pg_get_serial_sequence('logs', 'id'), max(id)) from logs")
    run(address, "analyze")


def log_ids(count: int) -> list[LogId]:
    """Returns the logs of a catalog that `load_streams` filled."""
    return [LogId(number) for number in range(1, count + 1)]


def together(clients: int, seconds_each: float, client: Client, *arguments: Any) -> float:
    """Runs so many clients, each in a process of its own, at the same time for so many seconds; returns their total
    amount of work per second."""
    gate = _PROCESSES.Barrier(clients + 1)
    answers: Any = _PROCESSES.Queue()
    running = [
        _PROCESSES.Process(target=_live, args=(gate, answers, seconds_each, client, number, arguments), daemon=True)
        for number in range(clients)
    ]
    for each in running:
        each.start()
    gate.wait(120)
    found = [answers.get(timeout=120 + seconds_each) for _ in running]
    for each in running:
        each.join(60)
    failed = [what for what in found if isinstance(what, str)]
    if failed:
        raise RuntimeError(failed[0])
    return float(sum(found))


def _live(
    gate: Any, answers: Any, seconds_each: float, client: Client, number: int, arguments: tuple[Any, ...]
) -> None:
    try:
        work = client(number, *arguments)
        work()
        gate.wait(120)
        done, begun = 0, time.perf_counter()
        while (passed := time.perf_counter() - begun) < seconds_each:
            done += work()
        answers.put(done / passed)
    except BaseException as exc:
        gate.abort()
        answers.put(f"client {number}: {exc!r}")
