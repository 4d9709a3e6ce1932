"""This machine's own measurements, as events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch.errors import AnabranchError, MissingExtra
from anabranch.model.columns import TIME_TYPE
from anabranch.runtime.tasks import Task
from anabranch.store import Store

try:
    import psutil
except ImportError as exc:
    raise MissingExtra("the demo", "demo") from exc

__all__ = ["SCHEMA", "STREAM", "Collector", "Sampler"]

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
    """Asks the operating system. Rates are means since the sample before, so the first one holds fewer."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._before: dict[tuple[str, str], tuple[float, float]] = {}
        psutil.cpu_percent(percpu=True)  # its first answer means nothing
        self._samples = 0

    def sample(self) -> list[Sample]:
        """What can be measured now."""
        self._samples += 1
        samples = [*self._cpu(), *self._memory(), *self._disk(), *self._network()]
        # Walking all processes costs more than all the rest.
        if self._samples % 2 == 0:
            samples += self._processes()
        return samples

    def _cpu(self) -> Iterator[Sample]:
        for core, percent in enumerate(psutil.cpu_percent(percpu=True)):
            yield Sample("cpu", f"core {core}", percent, "%")

    def _memory(self) -> Iterator[Sample]:
        yield Sample("memory", "used", psutil.virtual_memory().percent, "%")

    def _disk(self) -> Iterator[Sample]:
        counters = psutil.disk_io_counters()  # None where the machine hides its disks, as some containers do
        if counters is not None:
            yield from self._rate("disk", "read", counters.read_bytes)
            yield from self._rate("disk", "written", counters.write_bytes)

    def _network(self) -> Iterator[Sample]:
        by_traffic = sorted(
            psutil.net_io_counters(pernic=True).items(), key=lambda item: -(item[1].bytes_recv + item[1].bytes_sent)
        )
        for name, counters in by_traffic[:INTERFACES_MAX]:
            yield from self._rate("network", f"{name} in", counters.bytes_recv)
            yield from self._rate("network", f"{name} out", counters.bytes_sent)

    def _processes(self) -> Iterator[Sample]:
        found = []
        for process in psutil.process_iter(["name", "cpu_percent"]):
            percent = process.info["cpu_percent"]
            if percent:  # None where we may not look
                found.append((percent, f"{process.info['name']} {process.pid}"))
        for percent, name in sorted(found, reverse=True)[:PROCESSES_MAX]:
            yield Sample("process", name, percent, "%")

    def _rate(self, metric: str, source: str, total: float) -> Iterator[Sample]:
        now = self._monotonic()
        before = self._before.get((metric, source))
        self._before[metric, source] = (now, total)
        if before is not None and now > before[0]:
            yield Sample(metric, source, max(total - before[1], 0.0) / (now - before[0]), "B/s")


class Collector:
    """Appends a sample every `period_s` seconds to `host/metrics`, which it creates, until it is closed.

    Each sample is durable before the next is taken. `error` is what ended it before its time, or None.
    """

    def __init__(self, store: Store, *, period_s: float = PERIOD_S) -> None:
        self.error: AnabranchError | None = None
        self.events = 0
        self._store = store
        self._period_s = period_s
        self._closed = False
        self._wake = store.runtime.tasks.condition()
        store.streams.create_scope(STREAM.partition("/")[0], exist_ok=True)
        store.streams.create(STREAM, schema=SCHEMA, key="source", time="at", exist_ok=True)
        self._task: Task = store.runtime.tasks.spawn("collector", self._work)

    def close(self) -> None:
        """Stop collecting; what was collected is durable. A second call is harmless."""
        self._closed = True
        with self._wake:
            self._wake.notify_all()
        self._task.join()

    def _work(self) -> None:
        clock = self._store.runtime.clock
        sampler = Sampler(clock.monotonic)
        try:
            with self._store.writer(STREAM) as writer:
                due = clock.monotonic()
                while not self._closed:
                    batch = _batch(sampler.sample(), clock.now())
                    writer.write_batch(batch).result()
                    self.events += batch.num_rows
                    due = max(due + self._period_s, clock.monotonic())
                    self._sleep_until(due)
        except AnabranchError as exc:
            self.error = exc

    def _sleep_until(self, due: float) -> None:
        with self._wake:
            while not self._closed and (left := due - self._store.runtime.clock.monotonic()) > 0:
                self._wake.wait(left)


def _batch(samples: list[Sample], at: int) -> pa.RecordBatch:
    metrics, sources, values, units = zip(*samples, strict=True)
    columns = [pa.array([at] * len(samples), TIME_TYPE), metrics, sources, pa.array(values, pa.float64()), units]
    return pa.record_batch([pa.array(c) if isinstance(c, tuple) else c for c in columns], schema=SCHEMA)
