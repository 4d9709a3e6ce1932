"""The broker's own metrics, counted by all its processes in shared memory, so that any of them can answer for all.

The set of values is fixed, and each process adds in a slot of its own, so that processes need no lock.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

FRONT_ENDS: Final = ("http", "flight", "grpc")
OUTCOMES: Final = ("ok", "refused", "failed")
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""The upper bounds of the histogram's buckets."""

HELP: Final = {
    "anabranch_broker_calls_total": (
        "counter",
        "Calls that ended, by front end and outcome: ok, refused (the caller's fault), failed (the broker's).",
    ),
    "anabranch_broker_call_seconds": ("histogram", "How long calls took, without those that follow a stream."),
    "anabranch_broker_received_bytes_total": ("counter", "Bytes of the bodies of requests."),
    "anabranch_broker_sent_bytes_total": ("counter", "Bytes of the bodies of answers."),
    "anabranch_broker_open_calls": ("gauge", "Calls under way, followers among them."),
    "anabranch_broker_shed_events_total": (
        "counter",
        "Events that the load policies of their streams kept out: rejected, or sampled_out.",
    ),
    "anabranch_broker_restarts_total": (
        "counter",
        "Processes of the broker that ended by themselves and were replaced.",
    ),
    "anabranch_broker_draining": ("gauge", "1 while the broker ends."),
}
SHED: Final = ("rejected", "sampled_out")
_PER_FRONT_END: Final = (
    *(f"calls.{outcome}" for outcome in OUTCOMES),
    *(f"seconds.{number}" for number in range(len(SECONDS) + 1)),
    *("seconds.sum", "received", "sent", "open"),
)
_CELLS: Final = {
    name: number
    for number, name in enumerate(
        (
            *(f"{front}.{each}" for front in FRONT_ENDS for each in _PER_FRONT_END),
            *(f"shed.{each}" for each in SHED),
            *("restarts", "started", "draining"),
        )
    )
}
# The same cells by position: to build the text of a name for each lookup costs more than to count.
_CELLS_OF: Final = {front: _CELLS[f"{front}.{_PER_FRONT_END[0]}"] for front in FRONT_ENDS}
_OUTCOME: Final = {outcome: _PER_FRONT_END.index(f"calls.{outcome}") for outcome in OUTCOMES}
_SECONDS: Final = _PER_FRONT_END.index("seconds.0")
_SECONDS_SUM, _RECEIVED, _SENT, _OPEN = map(_PER_FRONT_END.index, ("seconds.sum", "received", "sent", "open"))
_SLOT_BYTES: Final = 8 * len(_CELLS)


class Counters:
    """The counts of one process, and the sums over all. `slots` is the largest number of processes. The main process
    has slot 0 and creates the memory; each other process gets the memory's descriptor and a slot of its own."""

    def __init__(self, *, slots: int = 1, slot: int = 0, descriptor: int | None = None) -> None:
        self._slots = slots
        self._lock = threading.Lock()
        if descriptor is None:
            with tempfile.TemporaryFile(prefix="anabranch-") as file:
                descriptor = os.dup(file.fileno())
            os.ftruncate(descriptor, slots * _SLOT_BYTES)
        self.descriptor = descriptor
        self._cells = memoryview(mmap.mmap(descriptor, slots * _SLOT_BYTES)).cast("d")
        self._base = slot * len(_CELLS)
        for cell in range(self._base, self._base + len(_CELLS)):
            # The open calls of a killed process have ended; its counts are kept.
            if cell - self._base in _GAUGES:
                self._cells[cell] = 0.0

    def began(self, front_end: str) -> None:
        """A call has begun."""
        with self._lock:
            self._cells[self._base + _CELLS_OF[front_end] + _OPEN] += 1

    def ended(self, front_end: str, outcome: str, seconds: float | None, *, received: int = 0, sent: int = 0) -> None:
        """A call that `began` has ended. `seconds` is None for a call that followed a stream."""
        cells, first = self._cells, self._base + _CELLS_OF[front_end]
        with self._lock:
            cells[first + _OPEN] -= 1
            cells[first + _OUTCOME[outcome]] += 1
            cells[first + _RECEIVED] += received
            cells[first + _SENT] += sent
            if seconds is not None:
                cells[first + _SECONDS + bisect_left(SECONDS, seconds)] += 1
                cells[first + _SECONDS_SUM] += seconds

    def shed(self, outcome: str, events: int) -> None:
        """A load policy kept events out."""
        self._add(f"shed.{outcome}", events)

    def restarted(self) -> None:
        """A process has been replaced."""
        self._add("restarts", 1)

    def started(self) -> None:
        """All front ends accept connections, and the broker has said so."""
        self._add("started", 1)

    @property
    def is_started(self) -> bool:
        """True once `started` was called, in any process."""
        return self._sum("started") > 0

    def draining(self) -> None:
        """The broker ends."""
        self._add("draining", 1)

    def exposition(self) -> str:
        """The sums over all processes, in Prometheus text format."""
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        for metric, (kind, text) in HELP.items():
            yield f"# HELP {metric} {text}"
            yield f"# TYPE {metric} {kind}"
            if metric.endswith("shed_events_total"):
                for outcome in SHED:
                    yield f'{metric}{{outcome="{outcome}"}} {self._sum(f"shed.{outcome}"):.15g}'
            elif metric.endswith("restarts_total"):
                yield f"{metric} {self._sum('restarts'):.15g}"
            elif metric.endswith("draining"):
                yield f"{metric} {min(self._sum('draining'), 1):.15g}"
            else:
                for front_end in FRONT_ENDS:
                    yield from self._of_front_end(metric, front_end)

    def _of_front_end(self, metric: str, front_end: str) -> Iterator[str]:
        label = f'front_end="{front_end}"'
        if metric.endswith("calls_total"):
            for outcome in OUTCOMES:
                yield f'{metric}{{{label},outcome="{outcome}"}} {self._sum(f"{front_end}.calls.{outcome}"):.15g}'
        elif metric.endswith("call_seconds"):
            count = 0.0
            for number, bound in enumerate((*SECONDS, None)):
                count += self._sum(f"{front_end}.seconds.{number}")
                shown = "+Inf" if bound is None else f"{bound:g}"
                yield f'{metric}_bucket{{{label},le="{shown}"}} {count:.15g}'
            yield f"{metric}_sum{{{label}}} {self._sum(f'{front_end}.seconds.sum'):.15g}"
            yield f"{metric}_count{{{label}}} {count:.15g}"
        else:
            part = {"received_bytes_total": "received", "sent_bytes_total": "sent", "open_calls": "open"}
            cell = part[metric.removeprefix("anabranch_broker_")]
            yield f"{metric}{{{label}}} {self._sum(f'{front_end}.{cell}'):.15g}"

    def _add(self, cell: str, value: float) -> None:
        with self._lock:
            self._cells[self._base + _CELLS[cell]] += value

    def _sum(self, cell: str) -> float:
        number = _CELLS[cell]
        return sum(self._cells[slot * len(_CELLS) + number] for slot in range(self._slots))


_GAUGES: Final = frozenset(number for name, number in _CELLS.items() if name.endswith((".open", "draining")))
