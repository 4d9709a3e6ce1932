"""Measures the progress of a pipeline's queries, from Spark's own reports and the store's streams."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from anabranch.errors import AnabranchError
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.segment_range import RangesBetween
from anabranch.model.times import to_micros
from anabranch.spark.pipelines.backlog import BacklogAge, segment_progress
from anabranch.spark.pipelines.lateness import late_warning
from anabranch.spark.pipelines.plan import Step
from anabranch.spark.pipelines.shed_frame import KEPT_ROWS
from anabranch.spark.session.java_watch import JVM_GONE_ERRORS
from anabranch.spark.source.checkpoint import committed
from anabranch.spark.source.offsets import SourceOffset
from anabranch.store import Store
from anabranch.store.engine_api import event_times_at

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.spark.pipelines.prepare import PreparedQuery

__all__ = ["QueryMeter", "QueryProgress", "ShedRows", "reports_after"]

RATE_OVER_S: Final = 5.0


def reports_after(query: StreamingQuery, batch: int) -> list[Mapping[str, Any]]:
    """The reports on the micro-batches with higher numbers than `batch`, oldest first, as far as Spark keeps them (100 by
    default). An idle query repeats its last report."""
    # PySpark's `recentProgress` has Java write all of them as JSON, which took as much time as some micro-batches.
    kept: Any = query._jsq.recentProgress()
    found: list[Mapping[str, Any]] = []
    for number in reversed(range(len(kept))):
        report = json.loads(kept[number].json())
        if report["batchId"] <= batch:
            break
        found.append(report)
    return found[::-1]


class ShedRows:
    """Counts the events that one run of a query has shed. For one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted_to = -1  # the last batch that is counted
        self.total = 0

    def measure(self, query: StreamingQuery, last: Mapping[str, Any]) -> int:
        """The events shed up to the batch of Spark's `last` report. Raises Truncated, StreamNotFound."""
        if last.get("batchId", -1) > self._counted_to:
            for batch, report in {each["batchId"]: each for each in reports_after(query, self._counted_to)}.items():
                self.total += self._shed(report)
                self._counted_to = batch
        return self.total

    def _shed(self, report: Mapping[str, Any]) -> int:
        kept = report.get("observedMetrics", {}).get(KEPT_ROWS)
        if kept is None:  # a report that is repeated while the query is idle
            return 0
        read = 0
        for source in report["sources"]:
            end, start = _offset(source["endOffset"]), _offset(source["startOffset"])
            if end is None or end.keep_rate == 1:
                return 0
            begin: StreamCut = end.origin if start is None else end.start_of_batch(start)
            read += self._store.cuts.distance(end.cut.stream, begin, end.cut).events
        return max(0, read - int(kept["rows"]))


def _offset(value: Any) -> SourceOffset | None:
    found = json.loads(value) if isinstance(value, str) else value
    return SourceOffset.from_json(found) if isinstance(found, dict) and "cut" in found else None


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The progress of one statement at one moment.

    `state` is waiting (not yet started), starting (no batch yet), running, ended or failed. Counts of events: `read`
    since the generation's start; `rows_per_s`, the rate of reading over the last seconds; `lag` still to be read;
    `late` in the stream of late events; `written` in the result stream. `watermark_us`: windows that end at or before
    it are closed; None if there is none yet. `lag_s` is the age in seconds of the oldest unread event, at most the time
    since the run's start. `batch_ms` is the duration of the last batch, `stages_ms` that of its stages by Spark's names
    for them, and `batch_rows` the number of events that it read. `operators` holds a mapping for each stateful
    operator: `operator` (Spark's name), `rows`, `bytes`, `updated` rows and `commit_ms` in the last batch, and
    `dropped`, the rows that it left out as late in this run. `reached` holds the cut, as text, up to which each source
    is read, and `segments` a mapping for each segment of the sources (see `segment_progress`).

    `run_read` and `run_late` count events of this run alone. If late events are not kept (`keeps_late`), `run_late` is
    the number of rows that Spark reports as dropped. Spark counts these after partial aggregation within each
    partition, so it is a lower bound. `run_shed` counts the events of this run that were left out to shed load.
    """

    target: str
    state: str
    batch: int = -1
    read: int = 0
    rows_per_s: float = 0.0
    lag: int = 0
    lag_s: float = 0.0
    late: int = 0
    written: int = 0
    watermark_us: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    batch_ms: int = 0
    batch_rows: int = 0
    stages_ms: Mapping[str, int] = field(default_factory=dict)
    operators: Sequence[Mapping[str, Any]] = ()
    run_read: int = 0
    run_late: int = 0
    run_shed: int = 0
    keeps_late: bool = False
    late_stream: str | None = None
    reached: Mapping[str, str] = field(default_factory=dict)
    segments: Sequence[Mapping[str, Any]] = ()

    def as_json(self) -> dict[str, Any]:
        """The progress as a JSON object, also used in the catalog row."""
        return asdict(self)

    @property
    def warning(self) -> str | None:
        """The warning about events that this run lost as late; None if they are few."""
        return late_warning(self.as_json())


class QueryMeter:
    """Measures one query repeatedly. For one thread at a time."""

    def __init__(self, store: Store, step: Step, prepared: PreparedQuery) -> None:
        self._store = store
        self._target = prepared.target
        self._late = None if prepared.late is None else prepared.late.target
        self._starts = {StreamName.parse(name): StreamCut.parse(cut) for name, cut in prepared.starts.items()}
        self._names: dict[StreamId, list[StreamName]] = {}  # the names of each source, aliases included
        for name, cut in self._starts.items():
            self._names.setdefault(cut.stream, []).append(name)
        self._reached = self._starts | self._committed_cuts(prepared)
        self._late_tail = None if self._late is None else store.cuts.tail(self._late)
        self._event_times: dict[
            StreamName, tuple[StreamCut, Mapping[SegmentId, Micros]]
        ] = {}  # with the cut for which they were read
        self._run_read = self._run_late = 0
        self._traced_to = -1  # the last batch that has a span
        self._history: deque[tuple[float, int]] = deque()
        self._backlog = BacklogAge()
        self._counted_to = -1  # the last batch whose dropped rows are counted
        self._dropped: dict[int, int] = {}  # rows, by the number of the operator
        self._shed = None if step.statement.options.shed is None else ShedRows(store)
        self._last = QueryProgress(
            step.target,
            "waiting",
            keeps_late=self._late is not None,
            late_stream=None if self._late is None else str(step.statement.late_target),
            reached=self._reached_text(),
        )

    @property
    def reached(self) -> Mapping[StreamName, StreamCut]:
        """For each source the cut up to which the query has read, as of the last measurement."""
        return self._reached

    def measure(self, query: StreamingQuery | None) -> QueryProgress:
        """The query's progress now; the last known one where Spark or the store can't report it."""
        if query is None:
            return self._last
        try:
            state, report = _state_and_report(query)
            before = dict(self._reached)
            self._follow(report)
            counts = self._counts(query, report, before)
        except JVM_GONE_ERRORS:  # the pipeline's supervision reports it
            return self._last
        except AnabranchError:  # a stream was truncated or deleted meanwhile; the query itself will fail
            counts = {}
        operators, durations = report.get("stateOperators", ()), report.get("durationMs", {})
        read, lag = counts.get("read", self._last.read), counts.get("lag", self._last.lag)
        self._last = replace(
            self._last,
            state=state,
            batch=report.get("batchId", -1),
            rows_per_s=self._rate(read),
            watermark_us=_watermark(report) or self._last.watermark_us,
            lag_s=self._backlog.measure(read, lag, self._store.runtime.clock.monotonic()),
            state_rows=sum(part.get("numRowsTotal", 0) for part in operators),
            state_bytes=sum(part.get("memoryUsedBytes", 0) for part in operators),
            batch_ms=durations.get("triggerExecution", self._last.batch_ms),
            batch_rows=report.get("numInputRows", 0),
            stages_ms={stage: took for stage, took in durations.items() if stage != "triggerExecution"},
            run_read=self._run_read,
            run_late=self._run_late,
            reached=self._reached_text(),
            **counts,
        )
        return self._last

    def _counts(
        self, query: StreamingQuery, report: Mapping[str, Any], before: Mapping[StreamName, StreamCut]
    ) -> dict[str, Any]:
        """The counts of events, and what is derived from the store's streams. Raises AnabranchError."""
        self._trace(query, report)
        self._run_read += self._read_since(before)
        operators = self._operators(query, report)
        self._run_late = sum(self._dropped.values()) if self._late is None else self._run_late + self._late_since()
        run_shed = 0 if self._shed is None else self._shed.measure(query, report)
        unread = {name: self._store.cuts.between(cut.stream, cut) for name, cut in self._reached.items()}
        return {
            "read": self._read_since(self._starts),
            "lag": sum(each.events for each in unread.values()),
            "late": 0 if self._late is None else self._length(self._late),
            "written": self._length(self._target),
            "operators": operators,
            "run_shed": run_shed,
            "segments": self._segments(unread),
        }

    def _committed_cuts(self, prepared: PreparedQuery) -> dict[StreamName, StreamCut]:
        """Where the run begins in each source, if an earlier run committed a batch."""
        try:
            _, cuts = committed(self._store.catalog, prepared.checkpoint)
        except (OSError, ValueError, LookupError, AnabranchError):  # a damaged checkpoint, which Spark will report
            return {}
        return {name: cut for stream, cut in cuts.items() for name in self._names.get(stream, ())}

    def _follow(self, spark_progress: Mapping[str, Any]) -> None:
        for source in spark_progress.get("sources", ()):
            if (end := _offset(source.get("endOffset"))) is not None:
                self._reached |= dict.fromkeys(self._names.get(end.cut.stream, ()), end.cut)

    def _reached_text(self) -> Mapping[str, str]:
        return {str(name): str(cut) for name, cut in self._reached.items()}

    def _read_since(self, before: Mapping[StreamName, StreamCut]) -> int:
        distance = self._store.cuts.distance
        return sum(distance(cut.stream, before[name], cut).events for name, cut in self._reached.items())

    def _late_since(self) -> int:
        """Late events since the last call."""
        assert self._late is not None and self._late_tail is not None
        tail = self._store.cuts.tail(self._late)
        since, self._late_tail = self._late_tail, tail
        return self._store.cuts.distance(self._late, since, tail).events

    def _operators(self, query: StreamingQuery, spark_progress: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """What Spark reports about each stateful operator, in its order."""
        parts = spark_progress.get("stateOperators", ())
        # A batch that only closes windows has its own number. An idle query repeats its last report.
        if parts and spark_progress["batchId"] > self._counted_to:
            by_batch = {each["batchId"]: each for each in reports_after(query, self._counted_to)}
            self._counted_to = max(by_batch, default=self._counted_to)
            for report in by_batch.values():
                for number, part in enumerate(report["stateOperators"]):
                    dropped = part.get("numRowsDroppedByWatermark", 0)
                    self._dropped[number] = self._dropped.get(number, 0) + dropped
        return [
            {
                "operator": part.get("operatorName", ""),
                "rows": part.get("numRowsTotal", 0),
                "bytes": part.get("memoryUsedBytes", 0),
                "updated": part.get("numRowsUpdated", 0),
                "commit_ms": part.get("commitTimeMs", 0),
                "dropped": self._dropped.get(number, 0),
            }
            for number, part in enumerate(parts)
        ]

    def _trace(self, query: StreamingQuery, spark_progress: Mapping[str, Any]) -> None:
        """Record a span for each batch since the last call, if the store is traced."""
        tracing = self._store.runtime.tracing
        if tracing is None or spark_progress.get("batchId", -1) <= self._traced_to:
            return
        for each in reports_after(query, self._traced_to):
            if "addBatch" not in each["durationMs"]:
                continue
            began_at = to_micros(datetime.fromisoformat(each["timestamp"]))
            tracing.micro_batch(
                (query.name or "").removesuffix(f"/{self._last.target}"),
                self._last.target,
                each["batchId"],
                each["numInputRows"],
                began_at=began_at,
                ended_at=began_at + 1000 * each["durationMs"]["triggerExecution"],
            )
            self._traced_to = each["batchId"]

    def _segments(self, unread: Mapping[StreamName, RangesBetween]) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for name, cut in self._reached.items():
            known = self._event_times.get(name)
            if known is None or known[0] != cut:
                known = self._event_times[name] = (cut, event_times_at(self._store.internals.logs, cut))
            found += segment_progress(name, cut, unread[name], known[1])
        return found

    def _length(self, stream: StreamName | StreamId) -> int:
        return self._store.cuts.distance(stream).events

    def _rate(self, read: int) -> float:
        now = self._store.runtime.clock.monotonic()
        self._history.append((now, read))
        while len(self._history) > 2 and now - self._history[1][0] > RATE_OVER_S:
            self._history.popleft()
        passed = now - self._history[0][0]
        return (read - self._history[0][1]) / passed if passed > 0 else 0.0


def _state_and_report(query: StreamingQuery) -> tuple[str, Mapping[str, Any]]:
    """A query's state, and Spark's report on its last batch ({} if there is none)."""
    report = query.lastProgress
    state = "starting" if report is None else "running"
    if not query.isActive:
        state = "failed" if query.exception() is not None else "ended"
    return state, {} if report is None else json.loads(report.json)


def _watermark(spark_progress: Mapping[str, Any]) -> int | None:
    text = spark_progress.get("eventTime", {}).get("watermark")
    if text is None:
        return None
    micros = to_micros(datetime.fromisoformat(text))
    return micros or None  # Spark reports zero if there is none yet
