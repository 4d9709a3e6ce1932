"""Spans of OpenTelemetry, for appends, commits, reads, steps of jobs and micro-batches of pipelines.

A store traces only if a tracer provider was handed in (`anabranch.connect(…, tracer_provider=…)`); otherwise
`Runtime.tracing` is None, and nothing of OpenTelemetry is imported. Its API is an optional dependency.

This file declares all names: of the spans, and of their attributes. The names follow the semantic conventions for
messaging where the conventions have one; other names begin with `anabranch.`. A span never holds keys or payloads of
events, addresses or credentials. An error appears as its class only, because its message may quote data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from anabranch.errors.optional import optional

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from anabranch.model.ids import Micros, SegmentId
    from anabranch.runtime.clock import Clock

__all__ = ["AppendSpan", "Tracing"]

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.30.0"  # the version of the conventions that names are taken from

_SYSTEM: Final = "messaging.system"
_OPERATION: Final = "messaging.operation.name"
_OPERATION_TYPE: Final = "messaging.operation.type"
_STREAM: Final = "messaging.destination.name"
_SEGMENT: Final = "messaging.destination.partition.id"
_EVENTS: Final = "messaging.batch.message_count"
_CLIENT: Final = "messaging.client.id"
_GROUP: Final = "messaging.consumer.group.name"
_ERROR: Final = "error.type"
_COMMIT_BYTES: Final = "anabranch.commit.bytes"
_COMMIT_UNITS: Final = "anabranch.commit.units"
_JOB: Final = "anabranch.job.id"
_JOB_VERB: Final = "anabranch.job.verb"
_PIPELINE: Final = "anabranch.pipeline.name"
_BATCH: Final = "anabranch.pipeline.batch"


class AppendSpan:
    """The span of events that a writer accepted together: from the first call until all are durable or refused."""

    __slots__ = ("_callers", "_ended", "_span")

    def __init__(self, span: Span, caller: SpanContext) -> None:
        """`caller` is the parent of the span, if it is valid."""
        self._span = span
        self._callers = {caller.span_id}
        self._ended = False

    @property
    def context(self) -> SpanContext:
        """The identity of the span, for links."""
        return self._span.get_span_context()

    def join(self, caller: SpanContext) -> None:
        """Link the span of a further caller; the same one only once."""
        if caller.is_valid and caller.span_id not in self._callers:
            self._callers.add(caller.span_id)
            self._span.add_link(caller)

    def end(self, events: int, error: BaseException | None) -> None:
        """End the span; only the first call has an effect. Raises no Exception: an append does not fail because its
        span can't be processed."""
        if self._ended:
            return
        self._ended = True
        with suppress(Exception):
            self._span.set_attribute(_EVENTS, events)
            if error is not None:
                _fail(self._span, error)
            self._span.end()


class Tracing:
    """Records spans with the tracer of one provider. Thread-safe. Times are in µs since the Unix epoch, by the clock of
    this process (`now`), like the times of the caller's spans, and not by the catalog's clock."""

    def __init__(self, provider: TracerProvider, clock: Clock, *, version: str) -> None:
        """`version` is the version of the instrumentation. Raises MissingExtra if the API of OpenTelemetry is not
        installed."""
        with optional("tracing", "tracing"):
            from opentelemetry import context, trace

        self._api = trace
        self._no_parent = context.Context()
        self._tracer = provider.get_tracer("anabranch", version, schema_url=_SCHEMA)
        self._clock = clock

    def now(self) -> Micros:
        """The time at which a span begins that is recorded later."""
        return self._clock.now()

    def append(self, stream: str, writer: str, joined: AppendSpan | None = None) -> AppendSpan:
        """The span of an append, a child of the caller's current span. If `joined` is given, it is returned instead,
        with a link to the caller's current span."""
        caller = self._api.get_current_span().get_span_context()
        if joined is not None:
            joined.join(caller)
            return joined
        attributes = _operation("append", "send") | {_STREAM: stream, _CLIENT: writer}
        span = self._tracer.start_span(f"append {stream}", kind=self._api.SpanKind.CLIENT, attributes=attributes)
        return AppendSpan(span, caller)

    def commit(
        self,
        began_at: int,
        appends: Iterable[AppendSpan],
        *,
        units: int,
        events: int,
        size: int,
        error: BaseException | None,
    ) -> None:
        """Record a commit that is over. It has no parent, because it serves several appends; it links to them."""
        attributes = _operation("commit") | {_COMMIT_UNITS: units, _EVENTS: events, _COMMIT_BYTES: size}
        links = [self._api.Link(append.context) for append in dict.fromkeys(appends)]
        kind = self._api.SpanKind.INTERNAL
        self._record("commit", kind, attributes, began_at, parent=False, links=links, error=error)

    def read(self, began_at: int, stream: str, segment: SegmentId, events: int, *, group: str | None = None) -> None:
        """Record the reading of one batch, as a child of the caller's current span."""
        attributes = _operation("read", "receive") | {_STREAM: stream, _SEGMENT: str(segment), _EVENTS: events}
        if group is not None:
            attributes[_GROUP] = group
        self._record(f"read {stream}", self._api.SpanKind.CLIENT, attributes, began_at)

    def micro_batch(self, pipeline: str, stream: str, batch: int, events: int, *, began_at: int, ended_at: int) -> None:
        """Record a micro-batch of a pipeline's query that writes to `stream`. It has no parent."""
        attributes = _operation("process", "process") | {_STREAM: stream, _EVENTS: events}
        attributes |= {_PIPELINE: pipeline, _BATCH: batch}
        kind = self._api.SpanKind.CONSUMER
        self._record(f"process {stream}", kind, attributes, began_at, ended_at=ended_at, parent=False)

    @contextmanager
    def job_step(self, job: str, verb: str, *, stops: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        """The span of one step of a job; inside it is the current span. `stops`: exceptions that are no errors."""
        attributes = {_JOB: job, _JOB_VERB: verb}
        span = self._tracer.start_span(f"job step {verb}", attributes=attributes)
        try:
            with self._api.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as exc:
            if not isinstance(exc, stops):
                _fail(span, exc)
            raise
        finally:
            with suppress(Exception):  # an error in processing a span must not fail the step
                span.end()

    def _record(
        self,
        name: str,
        kind: SpanKind,
        attributes: dict[str, AttributeValue],
        began_at: int,
        *,
        ended_at: int | None = None,
        parent: bool = True,
        links: Sequence[Link] = (),
        error: BaseException | None = None,
    ) -> None:
        with suppress(Exception):  # an error in processing a span must not fail the operation
            span = self._tracer.start_span(
                name,
                context=None if parent else self._no_parent,
                kind=kind,
                attributes=attributes,
                links=links,
                start_time=began_at * 1000,
            )
            if error is not None:
                _fail(span, error)
            span.end((self._clock.now() if ended_at is None else ended_at) * 1000)


def _fail(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute(_ERROR, type(error).__name__)
    span.set_status(StatusCode.ERROR)


def _operation(name: str, kind: str | None = None) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {_SYSTEM: "anabranch", _OPERATION: name}
    if kind is not None:
        found[_OPERATION_TYPE] = kind
    return found
