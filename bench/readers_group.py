"""Reader groups: the speedup of eight readers over one, and how soon the segments of a killed reader are read again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import anabranch as ab
from bench.measure import in_turn
from bench.payloads import raw_table, rows_for
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import fresh

SEGMENTS = 8
LEASE_S = 2.0
_WAIT_S = 120.0


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Readers are separate processes, which are ready before the clock starts."""
    folder = setting.folder / "store"
    with fresh(folder, segments=SEGMENTS) as store:
        rows = 0
        with store.writer("bench/events") as writer:
            for number in range(setting.scaled(1024, 8)):
                table = raw_table(rows_for(1), number % 8)
                rows += table.num_rows
                writer.write_batch(table)
        return [_scaling(setting, store, folder, rows), _rebalance(setting, store, folder)]


def _scaling(setting: BenchmarkSetting, store: ab.Store, folder: Path, rows: int) -> Result:
    turns = iter(range(1_000))

    def rate(readers: int) -> float:
        name = f"bench/rate-{next(turns)}"
        group = store.groups.open(name, streams=["bench/events"], end=ab.TAIL)
        with _processes(folder, name, readers) as children:
            even = [SEGMENTS // readers] * readers
            _until(lambda: list(map(len, group.distribution().readers.values())) == even)
            begun = time.perf_counter()
            for child in children:  # all at once
                assert child.stdin is not None
                child.stdin.write("go\n")
                child.stdin.flush()
            counts = [_ask(child, "read") for child in children]
            taken = time.perf_counter() - begun
        assert sum(counts) == rows, (counts, rows)
        return rows / taken

    rounds = in_turn(setting.scaled(3, 1), lambda: rate(SEGMENTS), lambda: rate(1))
    cores = len(os.sched_getaffinity(0))
    return Result(
        "readers_group",
        f"{SEGMENTS} readers of a group on {SEGMENTS} segments",
        "events/s",
        median(rounds.ours),
        median(rounds.other),
        "one reader of a group",
        rounds.ratio,
        rounds.spread,
        # Without enough cores there is no target.
        Target(Bound.AT_LEAST, 6.0) if cores >= SEGMENTS else None,
        (
            f"{cores} cores, so at most {min(cores, SEGMENTS)} times one reader; the aim of 6 is for {SEGMENTS} cores or more",
        ),
    )


def _rebalance(setting: BenchmarkSetting, store: ab.Store, folder: Path) -> Result:
    found = []
    for turn in range(setting.scaled(5, 1)):
        name = f"bench/rebalance-{turn}"
        group = store.groups.open(name, streams=["bench/events"], lease_s=LEASE_S)
        with _processes(folder, name, 2, "follow") as children:
            _until(lambda group=group: sorted(map(len, group.distribution().readers.values())) == [4, 4])  # type: ignore[misc]
            begun = time.perf_counter()
            children[0].send_signal(signal.SIGKILL)
            _until(lambda group=group: list(map(len, group.distribution().readers.values())) == [SEGMENTS])  # type: ignore[misc]
            found.append(time.perf_counter() - begun)
    return Result(
        "readers_group",
        f"kill -9 of one of two readers → the other has all {SEGMENTS} segments",
        "s",
        median(found),
        target=Target(Bound.AT_MOST, LEASE_S + 2, absolute=True),
        notes=(f"a lease of {LEASE_S:g} s; slowest of {len(found)}: {max(found):.2f} s",),
    )


@contextmanager
def _processes(folder: Path, group: str, count: int, how: str = "ask") -> Iterator[list[subprocess.Popen[str]]]:
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.readers_group", str(folder), group, f"r{number}", how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        for number in range(count)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n", "a reading process did not start"
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


def _ask(child: subprocess.Popen[str], what: str) -> int:
    assert child.stdout is not None
    return int(json.loads(child.stdout.readline())[what])


def _until(true: object) -> None:
    deadline = time.perf_counter() + _WAIT_S
    while not true():  # type: ignore[operator]
        assert time.perf_counter() < deadline, "the group never settled"
        time.sleep(0.01)


def member(folder: str, name: str, reader: str, how: str) -> None:
    """A reading process: `ask` reads to the group's end on request, and returns how much that was; `follow`
    continues reading."""
    with ab.connect(folder, create=True) as store:
        group = store.groups.open(name)
        rows = 0
        with group.reader(reader) as reading:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            if how == "ask":
                sys.stdin.readline()
            for batch in reading.batches():
                rows += batch.num_rows
        sys.stdout.write(json.dumps({"read": rows}) + "\n")


FIGURE = Benchmark("readers_group", "reader groups", run, heavy=True)

if __name__ == "__main__":
    member(*sys.argv[1:])
