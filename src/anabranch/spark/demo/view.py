"""What the screen shows of the streams: read back out of the store, as any other reader would."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from anabranch.model.cut import HEAD, StreamCut
from anabranch.readers.reader import Reader
from anabranch.spark.pipeline_screen import clock_text, size_text
from anabranch.store import Store

__all__ = ["Closed", "HostMeters", "Meter", "Meters", "RowMeters", "Tailing", "closed_windows", "sparkline"]

SPARKS: Final = 32
WINDOWS_KEPT: Final = 64


class Tailing:
    """Reads what a stream gains, without ever waiting; for one thread. The stream may not be there yet."""

    def __init__(self, store: Store, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._start: StreamCut | None = store.streams.tail(stream) if store.streams.exists(stream) else None
        self._reader: Reader | None = None

    def rows(self) -> list[dict[str, Any]]:
        """The rows since the last call."""
        if self._reader is None:
            if not self._store.streams.exists(self._stream):
                return []
            self._reader = self._store.reader(self._stream, start=self._start or HEAD, follow=True)
        found: list[dict[str, Any]] = []
        while (batch := self._reader.read()) is not None:
            found += batch.to_pylist()
        return found

    def close(self) -> None:
        """A second call is harmless."""
        if self._reader is not None:
            self._reader.close()


# the events


@dataclass(slots=True)
class Meter:
    """A number that is shown with its recent past."""

    name: str
    text: str = "-"
    past: deque[float] = field(default_factory=lambda: deque(maxlen=SPARKS))


class Meters(Protocol):
    """Makes meters of events."""

    meters: Sequence[Meter]

    def take(self, rows: Sequence[dict[str, Any]]) -> None:
        """Follow new events."""
        ...


class HostMeters:
    """CPU, memory, disk, network and the busiest process."""

    def __init__(self) -> None:
        self._by_name = {name: Meter(name) for name in ("cpu", "memory", "disk", "network", "busiest")}
        self.meters: Sequence[Meter] = tuple(self._by_name.values())

    def take(self, rows: Sequence[dict[str, Any]]) -> None:
        """See `Meters`."""
        samples: dict[datetime, dict[str, list[dict[str, Any]]]] = {}
        for row in rows:
            samples.setdefault(row["at"], {}).setdefault(row["metric"], []).append(row)
        for sample in samples.values():
            for metric, found in sample.items():
                self._take(metric, found)

    def _take(self, metric: str, rows: list[dict[str, Any]]) -> None:
        values = [row["value"] for row in rows]
        if metric == "process":
            top = max(rows, key=lambda row: row["value"])
            self._set("busiest", top["value"], f"{top['source'].rpartition(' ')[0]} {top['value']:.0f} %")
        elif metric in ("disk", "network"):
            self._set(metric, sum(values), f"{size_text(sum(values))}/s")
        else:
            mean = sum(values) / len(values)
            self._set(metric, mean, f"{mean:.0f} %")

    def _set(self, name: str, value: float, text: str) -> None:
        meter = self._by_name[name]
        meter.text = text
        meter.past.append(value)


class RowMeters:
    """A file's rows: the mean of each number column in what was read since the last look."""

    def __init__(self, values: Sequence[str]) -> None:
        self.meters: Sequence[Meter] = tuple(Meter(name) for name in values)

    def take(self, rows: Sequence[dict[str, Any]]) -> None:
        """See `Meters`."""
        for meter in self.meters:
            values = [row[meter.name] for row in rows if row[meter.name] is not None]
            if values:
                mean = sum(values) / len(values)
                meter.text = f"{mean:,.4g}"
                meter.past.append(mean)


def sparkline(past: Sequence[float]) -> str:
    """The values as a row of bars, the smallest lowest; scaled from zero where all are positive."""
    if not past:
        return ""
    low, high = min(0.0, *past), max(past)
    if high == low:
        return _BARS[0] * len(past)
    return "".join(_BARS[min(int((value - low) / (high - low) * len(_BARS)), len(_BARS) - 1)] for value in past)


_BARS: Final = "▁▂▃▄▅▆▇█"


# the windows


@dataclass(frozen=True, slots=True)
class Closed:
    """A window that Spark has closed: its bounds, how many events and rows it has, and what it says."""

    target: str
    opened_us: int
    closed_us: int
    events: int
    rows: int
    text: str

    @property
    def bounds(self) -> str:
        """Its bounds for the eye."""
        return f"{clock_text(self.opened_us)}–{clock_text(self.closed_us).rpartition(' ')[2]}"


def closed_windows(target: str, rows: Sequence[dict[str, Any]]) -> list[Closed]:
    """The windows that new rows of a result stream belong to, in order. A window's rows come in one batch."""
    windows: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in rows:
        windows.setdefault((_micros(row["opened"]), _micros(row["closed"])), []).append(row)
    return [
        Closed(target, opened, closed, sum(row["events"] for row in found), len(found), _say(found))
        for (opened, closed), found in sorted(windows.items())
    ]


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


def _say(rows: list[dict[str, Any]]) -> str:
    """A window's rows in a few words."""
    if "metric" in rows[0]:
        return ", ".join(
            text for metric in ("cpu", "memory", "disk", "network", "process") if (text := _metric(metric, rows))
        )
    events = sum(row["events"] for row in rows)
    said = []
    for name in rows[0]:
        if name.startswith("mean_"):
            weighted = [(row[name], row["events"]) for row in rows if row[name] is not None]
            if weighted and events:
                mean = sum(value * count for value, count in weighted) / sum(count for _, count in weighted)
                said.append(f"{name.removeprefix('mean_')} {mean:,.4g}")
    return ", ".join(said)


def _metric(metric: str, rows: list[dict[str, Any]]) -> str:
    found = [row for row in rows if row["metric"] == metric]
    if not found:
        return ""
    events = sum(row["events"] for row in found)
    mean = sum(row["mean"] * row["events"] for row in found) / events
    if metric == "process":
        top = max(found, key=lambda row: row["mean"] * row["events"])
        return f"busiest {top['source'].rpartition(' ')[0]}"
    if metric in ("disk", "network"):
        # Its rows are disks or interfaces and directions, which add up.
        return f"{metric} {size_text(sum(row['mean'] for row in found))}/s"
    return f"{metric} {mean:.0f} %"
