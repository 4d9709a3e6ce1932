"""Arrow batches through a broker by Flight: appends beside the embedded store's, reads beside a bare Flight server's."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyarrow import flight

import anabranch as ab
from bench.measure import Rounds, in_turn, seconds
from bench.payloads import raw_table
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.serve_broker import ServedProcess
from bench.stores import fresh

ROWS = 10_000
SEGMENTS = 8
_TARGET = Target(Bound.AT_LEAST, 0.7)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Appends batches of 10,000 rows and flushes; then reads what is there from its head to its tail."""
    return [_append(setting), _read(setting)]


def _append(setting: BenchmarkSetting) -> Result:
    count, rounds = setting.scaled(200, 4), setting.scaled(5, 1)
    tables = [raw_table(ROWS, seed) for seed in range(4)]
    served = setting.folder / "served"
    fresh(served, segments=SEGMENTS).close()
    used: list[float] = []

    def appended(writer: Any) -> float:
        def work() -> None:
            for number in range(count):
                writer.write_batch(tables[number % len(tables)])
            writer.flush()

        return count * ROWS / seconds(work)

    with (
        fresh(setting.folder / "embedded", segments=SEGMENTS) as own,
        own.writer("bench/events") as embedded,
        ServedProcess.broker(served) as broker,
        _connected(broker) as store,
        store.writer("bench/events") as remote,
    ):

        def through_broker() -> float:
            before = broker.cpu_s()
            rate = appended(remote)
            used.append((broker.cpu_s() - before) / (count * ROWS) * 1e6)
            return rate

        through_broker(), appended(embedded)
        used.clear()
        found = in_turn(rounds, through_broker, lambda: appended(embedded))
    what = f"append of batches of {ROWS:,} rows by Flight, durable"
    return _result(what, found, "the embedded store's append", used)


def _read(setting: BenchmarkSetting) -> Result:
    count, rounds = setting.scaled(200, 4), setting.scaled(5, 1)
    folder = setting.folder / "read"
    with fresh(folder, segments=SEGMENTS) as store, store.writer("bench/events") as writer:
        for number in range(count):
            writer.write_batch(raw_table(ROWS, number % 4))
    rows = count * ROWS
    used: list[float] = []
    command = [sys.executable, "-m", "bench.serve_flight", str(folder)]
    with ServedProcess.broker(folder) as broker, _connected(broker) as remote, ServedProcess(command, folder) as bare:

        def through_broker() -> float:
            before = broker.cpu_s()
            with remote.reader("bench/events") as reader:
                rate = rows / seconds(lambda: _touch(reader.batches(), rows))
            used.append((broker.cpu_s() - before) / rows * 1e6)
            return rate

        with closing(flight.FlightClient(bare.addresses["flight"])) as client:

            def from_bare_server() -> float:
                ticket = flight.Ticket(b"")
                return rows / seconds(lambda: _touch((chunk.data for chunk in client.do_get(ticket)), rows))

            through_broker(), from_bare_server()
            used.clear()
            found = in_turn(rounds, through_broker, from_bare_server)
    return _result("read of a stream by Flight", found, "a bare Flight server sending the same batches", used)


def _connected(broker: ServedProcess) -> Any:
    return ab.connect(broker.addresses["flight"])


def _touch(batches: Iterator[pa.RecordBatch], expected: int) -> None:
    rows = sum(batch.num_rows for batch in batches)
    assert rows == expected, (rows, expected)


def _result(what: str, found: Rounds, other: str, used: Sequence[float]) -> Result:
    return Result(
        "serve_flight",
        what,
        "events/s",
        median(found.ours),
        median(found.other),
        other,
        found.ratio,
        found.spread,
        _TARGET,
        ("keys and 100 bytes of payload", f"server CPU per event: {median(used):.2f} µs"),
    )


class _Bare(flight.FlightServerBase):  # type: ignore[misc]
    """The floor: batches from memory."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batches = batches

    def do_get(self, _: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        return flight.GeneratorStream(self._batches[0].schema, iter(self._batches))


def _serve(folder: Path) -> None:
    with ab.connect(folder) as store, store.reader("bench/events") as reader:
        server = _Bare(list(reader.batches()))
    print(f'{{"flight": "grpc://127.0.0.1:{server.port}"}}', flush=True)
    server.serve()


FIGURE = Benchmark("serve_flight", "Arrow batches through a broker", run)

if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
