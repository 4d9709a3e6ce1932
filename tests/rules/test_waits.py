"""Every wait in the product has a deadline, or stands here with the reason why it ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import anabranch

SOURCE = Path(anabranch.__file__).parent

WAITING = {"wait", "join", "result", "acquire", "communicate", "accept", "recv", "get", "select", "awaitTermination"}
BOUNDING = {"timeout", "timeout_s", "blocking"}
PROCESSES = {"run", "call", "check_call", "check_output"}

_CONDITION = "a condition, which looks again every limits.CONDITION_WAIT_S; "
_JOB = "the call that moves bytes: it takes as long as they do, and each of its requests has a deadline"
_DURABLE = "until it is durable or refused: both follow from the deadlines of the catalog and the blobs"
_ANSWERED = "a broker answers, or is given up after settings.catalog_lock_s"
_BROKER = "the broker asks, or the pipe closes with it"
ALLOWED = {
    "query/scan.py::Scans.close self._changed.wait": _CONDITION
    + "the pull under way was stopped, and its fetches have deadlines",
    "query/filter_ahead.py::FilterAhead.__next__ self._changed.wait": _CONDITION
    + "a task filters the batch, and its fetches have deadlines",
    "query/filter_ahead.py::FilterAhead.close self._changed.wait": _CONDITION
    + "tasks end after the batch at hand, whose fetches have deadlines",
    "query/filter_ahead.py::FilterAhead._begin self._changed.wait": _CONDITION
    + "until the consumer requests more, or closes",
    "query/worker.py::main pipe.recv": _BROKER,
    "query/worker.py::_request pipe.recv": _BROKER,
    "wasm/function.py::WasmFunction._take self._changed.wait": _CONDITION + "a call takes limits.MODULE_CALL_S_MAX",
    "spark/worker_access.py::WorkerAccess.explained TaskContext.get": "not a wait: Spark's context of this task",
    "spark/pipelines/declared_functions/calls.py::_batch TaskContext.get": "not a wait: Spark's context of this task",
    "spark/queries/driver.py::_serve messages.get": "the host says something, or its end ends the whole process",
    "spark/queries/driver.py::_end_with_java java.wait": "a task that has nothing to do until Spark's Java process ends",
    "spark/session/worker_server.py::_serve listener.accept": "called once a request is there",
    "store/at_once.py::AtOnce.replace writer.write_batch(data).result": _DURABLE,
    "blobs/objects.py::_run_all helper.join": "each part has settings.blob_deadline_s",
    "blobs/cache.py::_RateLimited.enter self._changed.wait": _CONDITION + "fetches have settings.blob_deadline_s",
    "blobs/cache.py::_Pool.get self._changed.wait": _CONDITION + "the fetch has settings.blob_deadline_s",
    "catalog/postgres/wakeup.py::Notifier._run self._changed.wait": _CONDITION + "a task that has nothing to do",
    "catalog/sqlite/replace.py::replace_catalog lock.acquire": "FairLock: settings.catalog_lock_s, then StoreBusy",
    "cli/demo/measure.py::Collector._collect self._writer.write_batch(batch).result": _DURABLE,
    "store/row_writer.py::RowWriter.settle ack.result": _DURABLE,
    "store/row_writer.py::RowWriter.write_held self.open(schema).write_batch(rows, atomic=True).result": _DURABLE,
    "cli/target_store.py::finish job.wait": _JOB,
    "cli/hold.py::_run process.wait": "the user's own command, as long as it runs",
    "log/appender.py::Appender._await_turn self._changed.wait": _CONDITION + "the commits before have deadlines",
    "log/read_ahead.py::ReadAhead.settle self._changed.wait": _CONDITION + "one checksum in memory",
    "reading/history/cache.py::RangeCache.get self._changed.wait": _CONDITION + "the fetch has deadlines",
    "reading/history/prefetch.py::Prefetch._await self._changed.wait": _CONDITION + "the fetches have deadlines",
    "reading/async_bridge.py::AsyncBridge._run self._changed.wait": _CONDITION + "a task that has nothing to do",
    "runtime/tasks.py::_ThreadCondition.wait self.acquire": "takes the condition's own lock back, held for moments",
    "spark/sink.py::_Sink._stage TaskContext.get": "not a wait",
    "spark/pipelines/analyze.py::provide_functions builder.get": "not a wait: an Option",
    "spark/pipelines/windows/processor.py::DriftProcessor.handleInputRows self._trackers.get": "not a wait: Spark's state",
    "spark/pipelines/windows/processor.py::CountWindows.handleInputRows self._open.get": "not a wait: Spark's state",
    "spark/pipelines/windows/processor.py::PaneWindows._advance self._state.get": "not a wait: Spark's state",
    "store/archives.py::Archives.create job.wait": _JOB,
    "store/archives.py::Archives.create_scope job.wait": _JOB,
    "store/archives.py::Archives.import_ job.wait": _JOB,
    "store/streams.py::StoreStreams.append job.wait": _JOB,
    "store/streams.py::StoreStreams.copy job.wait": _JOB,
    "store/scopes.py::StoreScopes.copy job.wait": _JOB,
    "store/streams.py::StoreStreams.replace made.wait": _JOB,
    "store/streams.py::StoreStreams.stitch job.wait": _JOB,
    "writing/acknowledgement.py::Ack.__await__ self.result": "it is done by then",
    "writing/acknowledgement.py::BatchAck.__await__ self.result": "it is done by then",
    "writing/acknowledgement.py::BatchAck.pointer self._acknowledgement.wait": _DURABLE,
    "writing/producer.py::ProducerAck.__await__ self.result": "it is done by then",
    "transfer/jobs/window.py::WorkWindow._hand_out self._changed.wait": _CONDITION + "steps of a job have deadlines",
    "remote/append_queue.py::AppendQueue._run self.changed.wait": _CONDITION + "a task that has nothing to do",
    "remote/append_queue.py::AppendQueue._due self.changed.wait": _CONDITION + _ANSWERED,
    "remote/append_queue.py::AppendQueue.wait_drained self.changed.wait": _CONDITION + _ANSWERED,
    "remote/append_queue.py::AppendQueue.wait_for_room self.changed.wait": _CONDITION + _ANSWERED,
    "remote/read_call.py::ReadCall._supply self.changed.wait": _CONDITION + "until the consumer takes what is ahead",
    "remote/session.py::RemoteSession._await_frame self._changed.wait": _CONDITION
    + "an answer, or the end of the connection, which is noticed by its own task",
    "server/flight/exchange.py::Exchange._next self._changed.wait": _CONDITION + "a silent client's session is ended",
    "server/flight/exchange.py::Exchange.receive self._changed.wait": _CONDITION + "a silent client's session is ended",
    "server/flight/sessions.py::SessionHost._serve task.join": "the session's end was set before",
    "remote/writer.py::RemoteWriter._send_time BatchAck(acknowledgement).result": _ANSWERED,
    "server/flight/append.py::_Answers._run self._changed.wait": _CONDITION + "a task that has nothing to do",
    "server/flight/append.py::_Answers.add self._changed.wait": _CONDITION + _DURABLE,
    "server/flight/append.py::_ProducerTarget._outcome accepted.result": _DURABLE,
    "server/grpc/append.py::_Window.get self._queue.get": "a caller who appends, until its connection ends, or a drain",
    "server/grpc/append.py::_Window.put self._less.wait": _DURABLE,
    "server/grpc/delivered.py::DeliveredBatches.room self._room.wait": "the caller commits within `GROUP_PROCESSING_S_MAX`",
    "server/grpc/group_reader.py::_GroupCall._deliver self._requested.get": "the task that receives requests ends first",
    "server/abandoned.py::_close opened.result": "not a wait: called once it is done",
    "server/events/writers.py::SharedWriters._opened opening.result": "not a wait: called once it is done",
    "server/grpc/session.py::GrpcSession.ask future.result": "the caller answers within `GROUP_PROCESSING_S_MAX`, or has gone",
    "server/grpc/append.py::_answer window.get": "a caller who appends, until its connection ends, or a drain",
    "server/http/durable_streams/append.py::_write_alone writer.write_batch(table, atomic=True, expected=expected).result": (
        _DURABLE
    ),
    "transfer/jobs/window.py::_join task.join": "steps of a job have deadlines",
}


class _Waits(ast.NodeVisitor):
    def __init__(self, file: str) -> None:
        self._file = file
        self._names: list[str] = []
        self.found: set[str] = set()

    def _named(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _named  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and self._is_unbounded(node, node.func):
            self.found.add(f"{self._file}::{'.'.join(self._names)} {ast.unparse(node.func)}")
        self.generic_visit(node)

    def _is_unbounded(self, node: ast.Call, function: ast.Attribute) -> bool:
        given = {each.arg: each.value for each in node.keywords}
        nothing = [*node.args, *(given[name] for name in BOUNDING & given.keys())]
        bounded = any(not (isinstance(each, ast.Constant) and each.value is None) for each in nothing)
        if ast.unparse(function.value) == "subprocess":
            return function.attr in PROCESSES and "timeout" not in given
        return function.attr in WAITING and not bounded


def waits_in(text: str, file: str) -> set[str]:
    visitor = _Waits(file)
    visitor.visit(ast.parse(text))
    return visitor.found


def sources() -> Iterator[Path]:
    return (file for file in SOURCE.rglob("*.py") if "testing" not in file.relative_to(SOURCE).parts)


def test_every_wait_has_a_deadline_or_a_reason_why_it_ends() -> None:
    found: set[str] = set()
    for file in sources():
        found |= waits_in(file.read_text(), file.relative_to(SOURCE).as_posix())
    assert found - ALLOWED.keys() == set(), (
        "give these a deadline, or say here and in docs/reference/waits.md why they end"
    )
    assert ALLOWED.keys() - found == set(), "these are gone"


def test_a_wait_without_a_deadline_is_found() -> None:
    text = "def f(x):\n x.wait()\n x.join(timeout=None)\n x.get(3)\n x.result(timeout=4)\n subprocess.run([x])\n"
    assert waits_in(text, "a.py") == {"a.py::f x.wait", "a.py::f x.join", "a.py::f subprocess.run"}
