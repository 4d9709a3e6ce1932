"""How far each query of a pipeline is: from Spark's own progress, and from what the store says of the streams."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from anabranch.errors import AnabranchError
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.times import to_micros
from anabranch.spark.pipeline_plan import Step
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.spark.pipeline_prepare import Prepared

__all__ = ["SILENT", "Gauge", "QueryProgress"]

# What calls of Spark raise when its Java process was killed: the one under way the first, those after it the second.
SILENT: Final = (Py4JError, ConnectionError)
RATE_OVER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One statement at one moment. `state` is waiting (not yet started), starting (no batch yet), running, ended or failed.

    Events: `read` so far since the generation's start, of which `rows_per_s` in the last seconds; `lag` still to be
    read; `late` in the side stream and `written` in the result stream. `watermark_us`: windows that end there or
    earlier are closed; None before there is one. `batch_ms` is what the last batch took.
    """

    target: str
    state: str
    batch: int = -1
    read: int = 0
    rows_per_s: float = 0.0
    lag: int = 0
    late: int = 0
    written: int = 0
    watermark_us: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    batch_ms: int = 0
    started: bool = field(default=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        """For a program, and for the catalog row."""
        return {name: value for name, value in asdict(self).items() if name != "started"}


class Gauge:
    """Measures one query again and again. For one thread at a time."""

    def __init__(self, store: Store, step: Step, prepared: Prepared) -> None:
        self._store = store
        self._target = prepared.target
        self._late = None if prepared.late is None else prepared.late.target
        self._starts = {StreamName.parse(name): StreamCut.parse(cut) for name, cut in prepared.starts.items()}
        self._reached = dict(self._starts)
        self._history: deque[tuple[float, int]] = deque()
        self._last = QueryProgress(step.target, "waiting")

    @property
    def reached(self) -> Mapping[StreamName, StreamCut]:
        """For each source the cut up to which the query has read, as of the last measurement."""
        return self._reached

    def measure(self, query: StreamingQuery | None) -> QueryProgress:
        """The query now; its last known progress where Spark or the store can't say."""
        if query is None:
            return self._last
        try:
            state, told = _asked(query)
        except SILENT:  # of which the supervision tells
            return self._last
        self._follow(told)
        try:
            read, lag = self._distances()
            written, late = self._length(self._target), 0 if self._late is None else self._length(self._late)
        except AnabranchError:  # a stream was truncated or deleted under us; the query itself will say so
            read, lag, written, late = self._last.read, self._last.lag, self._last.written, self._last.late
        self._last = QueryProgress(
            target=self._last.target,
            state=state,
            batch=told.get("batchId", -1),
            read=read,
            rows_per_s=self._rate(read),
            lag=lag,
            late=late,
            written=written,
            watermark_us=_watermark(told) or self._last.watermark_us,
            state_rows=sum(part.get("numRowsTotal", 0) for part in told.get("stateOperators", ())),
            state_bytes=sum(part.get("memoryUsedBytes", 0) for part in told.get("stateOperators", ())),
            batch_ms=told.get("durationMs", {}).get("triggerExecution", self._last.batch_ms),
        )
        return self._last

    def _follow(self, told: Mapping[str, Any]) -> None:
        for source in told.get("sources", ()):
            offset = source.get("endOffset")
            offset = json.loads(offset) if isinstance(offset, str) else offset
            if isinstance(offset, dict) and "stream" in offset:
                self._reached[StreamName.parse(offset["stream"])] = cut_of(offset)

    def _distances(self) -> tuple[int, int]:
        read = lag = 0
        for name, cut in self._reached.items():
            streams = self._store.streams
            read += streams.distance(cut.stream, self._starts[name], cut).events
            lag += streams.distance(cut.stream, cut).events
        return read, lag

    def _length(self, stream: StreamName | StreamId) -> int:
        return self._store.streams.distance(stream).events

    def _rate(self, read: int) -> float:
        now = self._store.runtime.clock.monotonic()
        self._history.append((now, read))
        while len(self._history) > 2 and now - self._history[1][0] > RATE_OVER_S:
            self._history.popleft()
        passed = now - self._history[0][0]
        return (read - self._history[0][1]) / passed if passed > 0 else 0.0


def _asked(query: StreamingQuery) -> tuple[str, Mapping[str, Any]]:
    """A query's state, and Spark's report of its last batch."""
    report = query.lastProgress
    state = "starting" if report is None else "running"
    if not query.isActive:
        state = "failed" if query.exception() is not None else "ended"
    return state, {} if report is None else json.loads(report.json)


def cut_of(offset: Mapping[str, Any]) -> StreamCut:
    """The cut that an offset of our source stands for."""
    return StreamCut.parse(str(offset["cut"]))


def _watermark(told: Mapping[str, Any]) -> int | None:
    text = told.get("eventTime", {}).get("watermark")
    if text is None:
        return None
    micros = to_micros(datetime.fromisoformat(text))
    return micros or None  # Spark's zero means that there is none yet
