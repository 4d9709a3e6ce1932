"""Samples that a real Prometheus and a broker get alike: counters with resets, gaps and jitter, gauges with labels that are
missing, and a histogram. All times are whole milliseconds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

BEGIN_S = 1_700_000_000
LENGTH_S = 3_600


@dataclass(frozen=True)
class Sample:
    """One sample of a stream's field."""

    stream: str
    column: str
    value: float
    at_ms: int
    labels: dict[str, str]

    @property
    def metric(self) -> str:
        return self.stream if self.column == "value" else f"{self.stream}_{self.column}"


def samples(seed: int = 11) -> Iterator[Sample]:
    """The samples, by series in the order of time."""
    chance = random.Random(seed)
    for job in ("api", "web"):
        for instance in ("a:1", "b:2", "c:3"):
            for method in ("get", "post"):
                labels = {"job": job, "instance": instance, "method": method}
                yield from _counter(chance, "requests", "total", labels)
    for host, region in (("a", "eu"), ("b", "eu"), ("c", "us"), ("d", "")):
        labels = {"host": host} | ({"region": region} if region else {})
        for at in _times(chance, 15, gaps=0.15):
            yield Sample("cpu", "value", round(chance.uniform(-50, 100), 3), at, labels)
        for at in _times(chance, 20, gaps=0.05):
            yield Sample("memory", "used", float(chance.randint(1, 1 << 40)), at, labels)
            yield Sample("memory", "free", chance.uniform(0, 1e-3), at, labels)
    for instance in ("a:1", "b:2"):
        counts = {"0.1": 0.0, "0.5": 0.0, "1": 0.0, "2.5": 0.0, "+Inf": 0.0}
        for at in _times(chance, 30, gaps=0.05):
            growth = 0
            for le in counts:
                growth += chance.randint(0, 4)
                counts[le] += growth
                yield Sample("latency", "bucket", counts[le], at, {"instance": instance, "le": le})
    for host in "abc":
        yield Sample("info", "value", 1.0, (BEGIN_S + 100) * 1000, {"host": host, "version": f"v{ord(host) % 2}"})


def _counter(chance: random.Random, stream: str, name: str, labels: dict[str, str]) -> Iterator[Sample]:
    value = float(chance.randint(0, 30))
    for at in _times(chance, 15, gaps=0.1):
        value = 0.0 if chance.random() < 0.03 else value + chance.choice((0, 1, 2.5, 40))
        yield Sample(stream, name, value, at, labels)


def _times(chance: random.Random, interval_s: int, *, gaps: float) -> Iterator[int]:
    phase = chance.randrange(interval_s * 1000)
    skipped_until = 0
    for step in range(LENGTH_S // interval_s):
        at = BEGIN_S * 1000 + step * interval_s * 1000 + phase + chance.choice((0, 0, 0, 7, 250))
        if chance.random() < 0.01:  # long enough for a series to be stale
            skipped_until = at + 420_000
        if at >= skipped_until and chance.random() >= gaps:
            yield at


def openmetrics() -> str:
    """The samples as Prometheus imports them: those of a metric together."""
    by_metric: dict[str, list[str]] = {}
    for each in samples():
        labels = ",".join(f'{name}="{value}"' for name, value in each.labels.items())
        by_metric.setdefault(each.metric, []).append(f"{each.metric}{{{labels}}} {each.value!r} {each.at_ms / 1000}")
    return "\n".join([*(line for lines in by_metric.values() for line in lines), "# EOF\n"])


def lines() -> Iterator[str]:
    """The samples as a broker takes them, by the line protocol in milliseconds."""
    for each in samples():
        labels = "".join(f",{name}={value}" for name, value in each.labels.items())
        yield f"{each.stream}{labels} {each.column}={each.value!r} {each.at_ms}"
