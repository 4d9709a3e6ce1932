"""How a process ends that asked a query: with its own exit code, whatever was still to be read."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Closed, CorruptBlob
from anabranch.query import Query
from anabranch.query.dataset import StreamDataset
from tests.interrupted import ctrl_c_everywhere
from tests.waiting import PATIENCE_S, until, until_ended

_COMMITS = 60
_ROWS = 10_000  # each commit: far more bytes in all than DuckDB or Arrow read ahead

_IN_MID_QUERY = """
import os, sys, anabranch as ab
from anabranch.query import Query
from anabranch.query.dataset import StreamDataset
batches = StreamDataset._batches
def told(self, *arguments):
    for batch in batches(self, *arguments):
        os.write(1, b"reads\\n")
        yield batch
StreamDataset._batches = told
with ab.connect(sys.argv[1], create=False) as store, Query(store) as query:
    list(query.run(sys.argv[2]))
"""
_LEFT_OPEN = """
import sys, anabranch as ab
from anabranch.query import Query
store = ab.connect(sys.argv[1], create=False)
result = Query(store).run("FROM s.numbers")
print(next(iter(result)).num_rows)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("query") / "store"
    with ab.connect(folder, create=True) as opened:
        opened.scopes.create("s")
        opened.streams.create("s/numbers", schema=pa.schema([("n", pa.int64()), ("text", pa.string())]))
        with opened.writer("s/numbers") as writer:
            for first in range(0, _COMMITS * _ROWS, _ROWS):
                numbers = pa.array(range(first, first + _ROWS))
                writer.write_batch(pa.table({"n": numbers, "text": pa.array(["x" * 60] * _ROWS)}), atomic=True)
    return folder


@pytest.fixture
def opened(store: Path) -> Iterator[ab.Store]:
    with ab.connect(store, create=False) as found:
        yield found


def ask(store: Path, sql: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "anabranch.cli.main", "--store", str(store), "query", sql]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_process_that_asks_for_a_few_rows_ends_well(store: Path, times: int) -> None:
    for _ in range(times):
        done = ask(store, "SELECT n FROM s.numbers LIMIT 3")
        assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 3)


@pytest.mark.slow
def test_a_process_that_asks_for_a_few_rows_with_a_filter_ends_well(store: Path) -> None:
    for _ in range(3):
        done = ask(
            store, "SELECT x.n FROM s.numbers x JOIN s.numbers y USING (n) WHERE x.n % 7 = 1 AND y.n > 9 LIMIT 3"
        )
        assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 3)


@pytest.mark.slow
def test_a_process_that_leaves_a_result_and_its_store_open_ends_well(store: Path) -> None:
    for _ in range(3):
        done = run(_LEFT_OPEN, store)
        assert (done.returncode, done.stderr) == (0, "")
        assert int(done.stdout) > 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM s.numbers x, s.numbers y, s.numbers z WHERE x.n + y.n + z.n = 1",
        "SELECT max(x.n) FROM s.numbers x, range(1000000000) y WHERE x.text < 'y'",
    ],
)
def test_ctrl_c_in_mid_query_ends_the_process_with_its_code(store: Path, sql: str) -> None:
    command = [sys.executable, "-c", _IN_MID_QUERY, str(store), sql]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "reads\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT
    assert told.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.slow
def test_an_error_in_mid_query_is_reported_and_ends_the_process_with_its_code(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/numbers", schema=pa.schema([("n", pa.int64()), ("text", pa.string())]))
        with made.writer("s/numbers") as writer:
            for first in range(0, 8 * _ROWS, _ROWS):
                numbers = pa.array(range(first, first + _ROWS))
                writer.write_batch(pa.table({"n": numbers, "text": pa.array(["x" * 60] * _ROWS)}), atomic=True)
                writer.flush()
        keys = sorted(blob.key for blob in made.blobs.list())
    damaged = tmp_path / "store" / "blobs" / keys[len(keys) // 2]
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    for _ in range(3):
        done = ask(tmp_path / "store", "SELECT sum(n) FROM s.numbers")
        assert done.returncode == 2
        assert done.stderr.startswith(f"anabranch: blob {keys[len(keys) // 2]} is corrupt")
        assert len(done.stderr.splitlines()) == 1
    with ab.connect(tmp_path / "store", create=False) as found, Query(found) as query:
        with pytest.raises(CorruptBlob):
            query.run("SELECT sum(n) FROM s.numbers")
        found.streams.create("s/other", schema=pa.schema([("n", pa.int64())]))
        result = query.run("SELECT count(*) AS n FROM s.other")  # whose errors are its own
        assert result is not None
        assert [batch.to_pylist() for batch in result] == [[{"n": 0}]]


def test_closing_waits_for_the_read_under_way_and_allows_no_other(
    opened: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    held, go_on, batches = threading.Event(), threading.Event(), StreamDataset._batches

    def slow(self: StreamDataset, *arguments: object) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(self, *arguments)):  # type: ignore[arg-type]
            if number == 5:
                held.set()
                assert go_on.wait(PATIENCE_S)
            read.append(threading.current_thread().name)
            yield batch

    monkeypatch.setattr(StreamDataset, "_batches", slow)
    query = Query(opened)
    ended: list[BaseException] = []

    def ask_all() -> None:
        try:
            list(query.run("SELECT sum(n) FROM s.numbers") or ())
        except Closed as exc:
            ended.append(exc)

    asking = threading.Thread(target=ask_all)
    asking.start()
    assert held.wait(PATIENCE_S)
    closing = threading.Thread(target=query.close)
    closing.start()
    until(lambda: query._current.scans.closed)
    assert closing.is_alive()
    go_on.set()
    until_ended(closing, asking)
    assert len(read) == 6
    assert len(ended) == 1
    with pytest.raises(Closed):
        query.run("SELECT 1")


def test_closing_the_store_ends_a_query_whose_result_is_half_read(store: Path) -> None:
    opened = ab.connect(store, create=False)
    query = Query(opened)
    result = query.run("FROM s.numbers")
    assert result is not None
    batches = iter(result)
    assert next(batches).num_rows > 0
    opened.close()
    with pytest.raises(Closed):
        next(batches)
    with pytest.raises(Closed):
        query.run("SELECT 1")


def test_the_next_query_ends_the_one_before_and_a_result_may_be_closed(opened: ab.Store) -> None:
    with Query(opened) as query:
        first = query.run("FROM s.numbers")
        assert first is not None
        assert next(iter(first)).num_rows > 0
        second = query.run("SELECT count(*) AS n FROM s.numbers")
        assert second is not None
        with pytest.raises(Closed):
            list(first)
        assert [batch.to_pylist() for batch in second] == [[{"n": _COMMITS * _ROWS}]]
        second.close()
        assert list(second) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ctrl-C in a generator that goes
def test_ctrl_c_anywhere_leaves_nothing_open(opened: ab.Store) -> None:
    def ask_some() -> None:
        with Query(opened) as query:
            result = query.run("SELECT n FROM s.numbers LIMIT 1")
            assert result is not None
            assert [batch.num_rows for batch in result] == [1]

    for press in ctrl_c_everywhere(stride=17):
        try:
            press(ask_some)
        except KeyboardInterrupt:
            for each in [each for each in opened._open if isinstance(each, Query)]:
                each.close()
        assert not [each for each in opened._open if isinstance(each, Query)]
        assert not [each for each in threading.enumerate() if each.name == "anabranch-query"]
    ask_some()
