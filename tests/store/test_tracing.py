"""Spans of OpenTelemetry: which there are, what they hold, how they are linked, and that nothing is loaded without."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import anabranch as ab
from anabranch import limits
from anabranch.errors import Closed, ConditionFailed, TooLarge
from anabranch.model.ids import Micros
from anabranch.runtime.clock import SystemClock
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tracing import Tracing
from anabranch.store import Store

SECRET = "a-payload-or-key-that-no-span-may-hold"


class Recorder:
    """A store at `store` that is traced with `provider`, and the spans it has exported."""

    def __init__(self, store: Store, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.store = store
        self.provider = provider
        self._exporter = exporter

    def spans(self, first_word: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.split()[0] == first_word]

    def one(self, first_word: str) -> ReadableSpan:
        (span,) = self.spans(first_word)
        return span

    def clear(self) -> None:
        self._exporter.clear()


def traced_provider() -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


@pytest.fixture
def traced() -> Iterator[Recorder]:
    provider, exporter = traced_provider()
    with ab.connect("memory://", tracer_provider=provider) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        yield Recorder(store, provider, exporter)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_an_append_has_a_span_with_the_names_of_the_messaging_conventions(traced: Recorder) -> None:
    with traced.store.writer("s/a", writer_id="w") as writer:
        writer.write(SECRET.encode(), key=SECRET).result()
    span = traced.one("append")
    assert (span.name, span.kind, span.status.status_code) == ("append s/a", SpanKind.CLIENT, StatusCode.UNSET)
    assert attributes(span) == {
        "messaging.system": "anabranch",
        "messaging.operation.name": "append",
        "messaging.operation.type": "send",
        "messaging.destination.name": "s/a",
        "messaging.client.id": "w",
        "messaging.batch.message_count": 1,
    }
    assert span.instrumentation_scope is not None
    assert (span.instrumentation_scope.name, span.instrumentation_scope.version) == ("anabranch", ab.__version__)


def test_a_commit_has_a_span_of_its_own_that_links_to_its_appends(traced: Recorder) -> None:
    with traced.store.writer("s/a") as writer:
        acks = [writer.write_batch(batch(2)), writer.write_batch(batch(3))]
        for ack in acks:
            ack.result()
    traced.store.close()  # a commit's span is recorded after its writers have their answers
    commits = traced.spans("commit")
    appends = {span.context.span_id for span in traced.spans("append") if span.context is not None}
    assert len(appends) == 2
    assert {link.context.span_id for span in commits for link in span.links} == appends
    assert sum(int(str(attributes(span)["messaging.batch.message_count"])) for span in commits) == 5
    for span in commits:
        assert span.parent is None and span.kind is SpanKind.INTERNAL
        assert attributes(span).keys() >= {"anabranch.commit.units", "anabranch.commit.bytes"}


def test_the_caller_is_the_parent_and_further_callers_of_the_same_append_are_linked(traced: Recorder) -> None:
    tracer = traced.provider.get_tracer("test")
    with traced.store.writer("s/a") as writer:
        writer._appender.offer = lambda source: None  # type: ignore[method-assign] # so that all events go into one chunk
        with tracer.start_as_current_span("first") as first:
            writer.write(b"1")
            writer.write(b"2")
        with tracer.start_as_current_span("second") as second:
            writer.write(b"3")
            writer.write(b"4")
        del writer._appender.offer  # type: ignore[attr-defined]
    span = traced.one("append")
    assert span.parent is not None and span.parent.span_id == first.get_span_context().span_id
    assert [link.context.span_id for link in span.links] == [second.get_span_context().span_id]
    assert attributes(span)["messaging.batch.message_count"] == 4


def test_a_refused_append_names_the_class_of_its_error_only(traced: Recorder) -> None:
    writer = traced.store.writer("s/a")
    with pytest.raises(ConditionFailed):
        writer.write(SECRET.encode(), expected=7).result()
    writer.close()
    span = traced.one("append")
    assert attributes(span)["error.type"] == "ConditionFailed"
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())


def test_a_batch_that_no_writer_accepts_ends_its_span_with_the_error(
    traced: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = traced.store.writer("s/a")
    begin = Tracing.append

    def close_meanwhile(*given: object) -> object:
        span = begin(*given)  # type: ignore[arg-type]
        writer.close()
        return span

    monkeypatch.setattr(Tracing, "append", close_meanwhile)
    with pytest.raises(Closed):
        writer.write_batch(batch(2))
    assert attributes(traced.one("append"))["error.type"] == "Closed"


def test_no_span_is_left_open_by_a_batch_that_can_not_be_routed(traced: Recorder) -> None:
    begun: list[str] = []

    class Begun(SpanProcessor):
        def on_start(self, span: Span, parent_context: Context | None = None) -> None:
            begun.append(span.name)

    traced.provider.add_span_processor(Begun())
    rows = pa.table({"key": ["k" * (limits.KEY_BYTES_MAX + 1)], "payload": [b"x"]})
    with traced.store.writer("s/a") as writer, pytest.raises(TooLarge):
        writer.write_batch(rows)
    assert len(traced.spans("append")) == begun.count("append s/a")


def test_each_batch_that_was_read_has_a_span_under_the_callers(traced: Recorder) -> None:
    with traced.store.writer("s/a") as writer:
        writer.write_batch(batch(3))
    tracer = traced.provider.get_tracer("test")
    with tracer.start_as_current_span("caller") as caller, traced.store.reader("s/a") as reader:
        assert len(list(reader)) == 3
    span = traced.one("read")
    assert span.parent is not None and span.parent.span_id == caller.get_span_context().span_id
    assert attributes(span) == {
        "messaging.system": "anabranch",
        "messaging.operation.name": "read",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "s/a",
        "messaging.destination.partition.id": "0.0",
        "messaging.batch.message_count": 3,
    }
    assert span.start_time is not None and span.end_time is not None and span.start_time <= span.end_time


@pytest.mark.parametrize("ahead_us", [5_000_000, -5_000_000])
def test_spans_go_by_the_clock_of_the_process_whatever_the_catalogs_says(ahead_us: int) -> None:
    class Shifted(SystemClock):
        def now(self) -> Micros:
            return Micros(super().now() + ahead_us)

    class Still(SystemClock):
        def now(self) -> Micros:
            return Micros(1_700_000_000_000_000)

    provider, exporter = traced_provider()
    runtime = Runtime(clock=Still(), catalog_clock=Shifted())
    with ab.connect("memory://", tracer_provider=provider, runtime=runtime) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        with store.writer("s/a") as writer:
            writer.write(b"x").result()
        with store.reader("s/a") as reader:
            next(iter(reader))
        with store.groups.open("s/g", streams="s/a").reader("r") as member:
            next(iter(member))
    spans = [span for span in exporter.get_finished_spans() if span.name.split()[0] in ("commit", "read")]
    assert [span.name for span in spans].count("read s/a") == 2
    assert {(span.start_time, span.end_time) for span in spans} == {(1_700_000_000 * 10**9, 1_700_000_000 * 10**9)}


def test_reading_nothing_has_no_span(traced: Recorder) -> None:
    with traced.store.reader("s/a", follow=True) as reader:
        assert reader.read(timeout_s=0.0) is None
    assert traced.spans("read") == []


def test_a_read_of_a_group_names_the_group(traced: Recorder) -> None:
    with traced.store.writer("s/a") as writer:
        writer.write(b"1")
    with traced.store.groups.open("s/g", streams="s/a").reader("r") as reader:
        assert reader.read(timeout_s=30.0) is not None
    assert attributes(traced.one("read"))["messaging.consumer.group.name"] == "s/g"


def test_each_step_of_a_job_has_a_span(traced: Recorder, tmp_path: Path) -> None:
    with ab.connect(tmp_path / "source", create=True) as source:
        source.scopes.create("s")
        source.streams.create("s/far")
        with source.writer("s/far") as writer:
            writer.write_batch(batch(3))
        job = traced.store.jobs.copy(source, "s/far", "s/here")
        job.wait()
        span = traced.one("job")
    assert span.name == "job step copy"
    assert attributes(span) == {"anabranch.job.id": job.id, "anabranch.job.verb": "copy"}
    assert span.status.status_code is StatusCode.UNSET


def test_no_span_holds_what_events_hold(traced: Recorder) -> None:
    with traced.store.writer("s/a") as writer:
        writer.write(SECRET.encode(), key=SECRET)
    with traced.store.reader("s/a") as reader:
        list(reader)
    traced.store.close()
    names = ("append", "commit", "read")
    for name in names:
        assert SECRET not in str(traced.one(name).to_json())


class Broken(SpanProcessor):
    """A processor that raises."""

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("no collector")


def test_a_processor_that_fails_harms_no_append_and_no_read() -> None:
    provider = TracerProvider()
    provider.add_span_processor(Broken())
    with ab.connect("memory://", tracer_provider=provider) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        with store.writer("s/a") as writer:
            pointers = [writer.write(b"%d" % number).result() for number in range(3)]
        with store.reader("s/a") as reader:
            assert len(list(reader)) == 3
    assert [pointer.offset for pointer in pointers] == [0, 1, 2]


def test_threads_that_write_at_once_lose_no_event_of_the_count(traced: Recorder) -> None:
    with traced.store.writer("s/a") as writer:

        def write() -> None:
            for _ in range(50):
                writer.write(b"x")

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counted = sum(int(str(attributes(span)["messaging.batch.message_count"])) for span in traced.spans("append"))
    assert counted == 200


def test_without_a_provider_nothing_of_opentelemetry_is_loaded() -> None:
    code = """
import sys
import anabranch as ab
with ab.connect("memory://") as store:
    store.scopes.create("s")
    store.streams.create("s/a")
    with store.writer("s/a") as writer:
        writer.write(b"1").result()
    with store.reader("s/a") as reader:
        assert len(list(reader)) == 1
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_provider_without_the_api_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    provider, _ = traced_provider()
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ab.errors.MissingExtra, match=r"anabranch\[tracing\]"):
        ab.connect("memory://", tracer_provider=provider)


def batch(count: int) -> pa.Table:
    return pa.table({"payload": pa.array([b"x"] * count, pa.binary())})
