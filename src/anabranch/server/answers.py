"""The messages of a verb while it runs, for front ends whose callers get several messages per call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

from anabranch import limits
from anabranch.errors import Closed
from anabranch.security.guard import Principal
from anabranch.server import calls
from anabranch.server.abandoned import closed_with
from anabranch.server.broker import Broker
from anabranch.server.queries import CallersQueries
from anabranch.server.steps import run_steps
from anabranch.transfer.jobs.job import Job
from anabranch.wire.steps import RUN
from anabranch.wire.values import to_json
from anabranch.wire.verbs.jobs import job_handle
from anabranch.wire.warnings import warning_to_json

Kind: TypeAlias = Literal["result", "item", "end", "progress", "started", "warning"]


class Message(NamedTuple):
    """One message of an answer, its value as JSON. The last one is `result`, or `end` after the `item`s of a verb that
    returns a list in parts. `progress` is `[what, done, total]`; `started` is the job that does the work; `warning`
    (`anabranch.wire.warnings`) comes before the result."""

    kind: Kind
    value: Any


def answer(
    broker: Broker,
    principal: Principal,
    verb: str,
    arguments: Mapping[str, Any],
    *,
    reports: bool,
    queries: CallersQueries,
) -> Iterator[Message]:
    """The messages of one call, made while they are taken; progress and started jobs only with `reports`. The caller has
    counted the call. `verb` may also be `run`, whose queries `queries` runs. Raises as `calls.run`, some of it only then."""
    if reports and verb != RUN:
        return _Reported(broker, principal, verb, arguments).messages()
    issued: list[Warning] = []
    result: Any
    if verb == RUN:
        result = run_steps(broker, principal, arguments, queries, warned=issued.append)
    else:
        result = calls.run(broker, principal, verb, arguments, warned=issued.append, admit=False)
    return chain(map(_warning, issued), _results(result))


def _warning(warning: Warning) -> Message:
    return Message("warning", warning_to_json(warning))


def _results(result: Any) -> Iterator[Message]:
    if not isinstance(result, Iterator):
        yield Message("result", to_json(result))
        return
    for item in result:
        yield Message("item", to_json(item))
    yield Message("end", None)


class _Reported:
    """A call whose progress is sent while it runs, in a task of its own."""

    def __init__(self, broker: Broker, principal: Principal, kind: str, arguments: Any) -> None:
        self._broker = broker
        self._call = (principal, kind, arguments)
        self._changed = broker.store.runtime.tasks.condition()
        self._reports: deque[Message] = deque(maxlen=limits.PROGRESS_REPORTS_MAX)  # older reports are obsolete
        self._results: deque[Message] = deque()  # and started jobs; it waits while there are RESULTS_AHEAD_MAX
        self._error: BaseException | None = None
        self._ended = False
        self._dropped = False

    def messages(self) -> Iterator[Message]:
        """All messages, as they come."""
        self._broker.store.runtime.tasks.spawn(f"call {self._call[1]:.40}", self._work)
        return closed_with(self._sent(), self._drop)

    def _sent(self) -> Iterator[Message]:
        try:
            while True:
                with self._changed:
                    while not (self._results or self._reports or self._ended):
                        self._changed.wait(limits.CONDITION_WAIT_S)
                    ready = [*self._reports, *self._results]
                    self._reports.clear()
                    self._results.clear()
                    ended = self._ended and not ready
                    self._changed.notify_all()
                if ended:
                    break
                yield from ready
        finally:
            self._drop()
        if self._error is not None:
            raise self._error

    def _drop(self) -> None:
        """Nobody takes messages any longer."""
        with self._changed:
            self._dropped = True
            self._changed.notify_all()

    def _work(self) -> None:
        principal, kind, arguments = self._call
        reports: dict[str, Any] = {
            "progress": self._progress,
            "started": self._started,
            "warned": lambda warning: self._put(_warning(warning)),
        }
        try:
            for message in _results(calls.run(self._broker, principal, kind, arguments, **reports, admit=False)):
                self._put(message)
        except BaseException as exc:
            self._error = exc
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _started(self, job: Job) -> None:
        self._put(Message("started", to_json(job_handle(job))))

    def _put(self, message: Message) -> None:
        with self._changed:
            while len(self._results) >= limits.RESULTS_AHEAD_MAX and not self._dropped:
                self._changed.wait(limits.CONDITION_WAIT_S)
            self._require_client()
            self._results.append(message)
            self._changed.notify_all()

    def _progress(self, what: str, done: int, total: int) -> None:
        with self._changed:
            if self._ended:  # of a job that continues after the call that began it
                return
            self._require_client()
            self._reports.append(Message("progress", [what, done, total]))
            self._changed.notify_all()

    def _require_client(self) -> None:
        if self._dropped:  # the client is gone: end where nothing is half done, as Ctrl-C does in the client's process
            raise Closed("call")
