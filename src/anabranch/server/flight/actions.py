"""DoAction: the verbs of the store. The kind of an action is the verb's name (`streams.copy`), its body JSON:

    {"arguments": {"source": "iot/raw", "target": "iot/copy"}, "progress": true}

Each result is a JSON object with one member: `result` (the last one), `item` (of a verb that returns a list bit by bit),
`progress` (`[what, done, total]`, if asked for) or `started` (the job that does the work, if asked for)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from anabranch import limits
from anabranch.errors import Closed, InvalidArgument
from anabranch.security.guard import Principal
from anabranch.server import calls
from anabranch.server.broker import Broker
from anabranch.transfer.jobs.job import Job
from anabranch.wire.hints import conform
from anabranch.wire.values import parse_bytes, to_bytes, to_json
from anabranch.wire.verbs import VERBS
from anabranch.wire.verbs.handles import job_handle

_MEMBERS: Final = {"arguments", "progress"}


class StoreActions:
    """Serves the verbs of a broker's store."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def run(self, principal: Principal, kind: str, body: bytes) -> Iterator[bytes]:
        """The results of one action, made while they are taken. Raises as `calls.run`, some of it only then."""
        request = conform(parse_bytes(body or b"{}"), dict, "the body of an action")
        if unknown := next((each for each in request if each not in _MEMBERS), None):
            raise InvalidArgument(f"the body of an action has the members arguments and progress, not '{unknown:.100}'")
        arguments = request.get("arguments", {})
        if conform(request.get("progress", False), bool, "'progress'"):
            return _Reported(self._broker, principal, kind, arguments).results()
        result = calls.run(self._broker, principal, kind, arguments, admit=False)
        return _results(result)

    def kinds(self) -> list[tuple[str, str]]:
        """The verbs, each with the first sentence of its documentation."""
        return [(each.name, _first_sentence(each.function.__doc__ or "")) for each in VERBS.values()]


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


def _results(result: Any) -> Iterator[bytes]:
    if not isinstance(result, Iterator):
        yield to_bytes({"result": to_json(result)})
        return
    for item in result:
        yield to_bytes({"item": to_json(item)})
    yield to_bytes({"result": None})


class _Reported:
    """A call whose progress is sent while it runs, in a task of its own."""

    def __init__(self, broker: Broker, principal: Principal, kind: str, arguments: Any) -> None:
        self._broker = broker
        self._call = (principal, kind, arguments)
        self._changed = broker.store.runtime.tasks.condition()
        self._reports: deque[bytes] = deque(maxlen=limits.PROGRESS_REPORTS_MAX)  # older ones are of no use to anybody
        self._results: deque[bytes] = deque()  # and started jobs; it waits while there are RESULTS_AHEAD_MAX
        self._error: BaseException | None = None
        self._ended = False
        self._dropped = False

    def results(self) -> Iterator[bytes]:
        """All results, as they come."""
        self._broker.store.runtime.tasks.spawn(f"call {self._call[1]:.40}", self._work)
        return self._sent()

    def _sent(self) -> Iterator[bytes]:
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
            with self._changed:
                self._dropped = True
                self._changed.notify_all()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        principal, kind, arguments = self._call
        reports: dict[str, Any] = {"progress": self._progress, "started": self._started}
        try:
            for data in _results(calls.run(self._broker, principal, kind, arguments, **reports, admit=False)):
                self._put(data)
        except BaseException as exc:
            self._error = exc
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _started(self, job: Job) -> None:
        self._put(to_bytes({"started": to_json(job_handle(job))}))

    def _put(self, data: bytes) -> None:
        with self._changed:
            while len(self._results) >= limits.RESULTS_AHEAD_MAX and not self._dropped:
                self._changed.wait(limits.CONDITION_WAIT_S)
            self._require_client()
            self._results.append(data)
            self._changed.notify_all()

    def _progress(self, what: str, done: int, total: int) -> None:
        with self._changed:
            if self._ended:  # of a job that goes on after the call that began it
                return
            self._require_client()
            self._reports.append(to_bytes({"progress": [what, done, total]}))
            self._changed.notify_all()

    def _require_client(self) -> None:
        if self._dropped:  # the client is gone: end where nothing is half done, as Ctrl-C does in the client's process
            raise Closed("call")
