"""Measures this machine and writes the measurements as events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch.errors.optional import optional
from anabranch.model.columns import TIME_TYPE
from anabranch.runtime.periodic import Periodic
from anabranch.store import Store

with optional("the demo", "demo"):
    import psutil

STREAM: Final = "host/metrics"
SCHEMA: Final = pa.schema(
    [
        ("at", TIME_TYPE),
        ("metric", pa.string()),  # cpu, memory, disk, network, process
        ("source", pa.string()),  # which core, disk, interface or process
        ("value", pa.float64()),
        ("unit", pa.string()),  # %, B/s
    ]
)
PERIOD_S: Final = 0.5
PROCESSES_MAX: Final = 5
INTERFACES_MAX: Final = 4


class Sample(NamedTuple):
    """One measurement."""

    metric: str
    source: str
    value: float
    unit: str


class Sampler:
    """Measures with psutil. Rates are means since the previous sample, so the first sample has none."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._before: dict[tuple[str, str], tuple[float, float]] = {}
        psutil.cpu_percent(percpu=True)  # its first result is meaningless
        self._samples = 0

    def sample(self) -> list[Sample]:
        """All available measurements; those of processes in every second call."""
        self._samples += 1
        samples = [
            Sample("cpu", f"core {core}", used, "%") for core, used in enumerate(psutil.cpu_percent(percpu=True))
        ]
        samples.append(Sample("memory", "used", psutil.virtual_memory().percent, "%"))
        disk = psutil.disk_io_counters()
        if disk is not None:  # a container may have none
            samples += self._rate("disk", "read", disk.read_bytes)
            samples += self._rate("disk", "written", disk.write_bytes)
        traffic = psutil.net_io_counters(pernic=True).items()
        for name, each in sorted(traffic, key=lambda item: -(item[1].bytes_recv + item[1].bytes_sent))[:INTERFACES_MAX]:
            samples += self._rate("network", f"{name} in", each.bytes_recv)
            samples += self._rate("network", f"{name} out", each.bytes_sent)
        # Iterating over all processes costs more than everything else.
        if self._samples % 2 == 0:
            samples += _busiest_processes()
        return samples

    def _rate(self, metric: str, source: str, total: float) -> Iterator[Sample]:
        now = self._monotonic()
        before = self._before.get((metric, source))
        self._before[metric, source] = (now, total)
        if before is not None and now > before[0]:
            yield Sample(metric, source, max(total - before[1], 0.0) / (now - before[0]), "B/s")


def _busiest_processes() -> list[Sample]:
    found = [
        (process.info["cpu_percent"], f"{process.info['name']} {process.pid}")
        for process in psutil.process_iter(["name", "cpu_percent"])
        if process.info["cpu_percent"]  # None without permission
    ]
    return [Sample("process", name, percent, "%") for percent, name in sorted(found, reverse=True)[:PROCESSES_MAX]]


class Collector:
    """Appends a sample to `host/metrics` every `period_s` seconds until it is closed; creates the stream if needed.

    Each sample is durable before the next is taken. A sample that can't be written is logged, and left out.
    """

    def __init__(self, store: Store, *, period_s: float = PERIOD_S) -> None:
        self.events = 0
        self._clock = store.runtime.clock
        store.scopes.create(STREAM.partition("/")[0], exist_ok=True)
        store.streams.create(STREAM, schema=SCHEMA, key="source", time="at", exist_ok=True)
        self._sampler = Sampler(self._clock.monotonic)
        self._writer = store.writer(STREAM)
        self._periodic = Periodic(store.runtime, "collector", period_s, self._collect)
        self._periodic.start()

    def close(self) -> None:
        """Stop collecting; all written samples are durable. A second call is harmless."""
        self._periodic.close()
        self._writer.close()

    def _collect(self) -> None:
        samples, now = self._sampler.sample(), self._clock.now()
        rows = [{"at": now, **sample._asdict()} for sample in samples]
        batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
        self._writer.write_batch(batch).result()
        self.events += batch.num_rows
