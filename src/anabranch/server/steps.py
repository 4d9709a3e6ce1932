"""Runs of several verbs in one call. Each step is authorized, counted and recorded as if it were called alone; with
`transaction`, all are one transaction of the catalog."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import msgspec

from anabranch import limits
from anabranch.catalog.joined import JoinedCatalog
from anabranch.catalog.port import Writing
from anabranch.errors import AnabranchError, Closed, TooLarge
from anabranch.model.ids import Micros
from anabranch.model.warn import Warned, issue_here
from anabranch.security.guard import Guard, Principal
from anabranch.server import calls
from anabranch.server.broker import Broker
from anabranch.server.calls import Served
from anabranch.server.events.row_encoder import check_result, encode_results
from anabranch.server.queries import CallersQueries, one_row
from anabranch.store.facade import Store
from anabranch.store.joined_store import JoinedStore
from anabranch.wire.steps import Run, RunStep, parse_run, resolve
from anabranch.wire.values import from_json, to_bytes, to_json
from anabranch.wire.verbs import QUERY, checked_arguments

SUMMARY: Final = "Call several verbs one after another; arguments may refer to earlier results"


def run_steps(
    broker: Broker, principal: Principal, arguments: Any, queries: CallersQueries, *, warned: Warned = issue_here
) -> list[Any]:
    """The results of the steps of a run, as values that `wire.values.to_json` takes. The result of a streaming verb is
    a list of its items; the result of a query, which `queries` runs, is a list of its rows. `arguments` are JSON; see
    `wire.steps`. The caller has already counted the first step.

    A step that fails ends the run, and raises its error with the step in the message; the earlier steps stay done.
    A run that takes longer than `limits.RUN_S_MAX` ends with a TimeoutError, a run whose answer grows too large with
    TooLarge. A transaction that ends with an error is rolled back as a whole. Its limits are lower:
    `limits.RUN_TRANSACTION_S_MAX`, and with a request id `limits.RUN_TRANSACTION_KEPT_BYTES_MAX`.

    A run that is requested again with the same request id repeats no change, and its steps return their first results.
    For this, results that were read before a change are recorded, too."""
    run = parse_run(arguments)
    if run.transaction:
        results = _run_together(broker, principal, run, queries, warned)
    else:
        results = _Running(broker, principal, run, queries, warned).results()
    return [from_json(result) for result in results]


def _run_together(broker: Broker, principal: Principal, run: Run, queries: CallersQueries, warned: Warned) -> list[Any]:
    """The results of the steps, made in one transaction, which ends after the last one."""
    # The request id is recorded for the transaction as a whole, so its steps need none.
    run_without_request = replace(run, request=None)
    answer_bytes_max = limits.RUN_ANSWER_BYTES_MAX if run.request is None else limits.RUN_TRANSACTION_KEPT_BYTES_MAX
    attempt: Together | None = None

    def change(txn: Writing, _now: Micros) -> dict[str, Any]:
        nonlocal attempt
        attempt = Together(broker, txn)
        running = _Running(
            attempt,
            principal,
            run_without_request,
            queries,
            warned,
            s_max=limits.RUN_TRANSACTION_S_MAX,
            answer_bytes_max=answer_bytes_max,
        )
        results = running.results()
        attempt.require_sound()
        return {"results": results}

    try:
        outcome = broker.store.changes.apply(f"run {_digest(run.as_json)}", run.request, change)
    except Exception as exc:
        if attempt is not None:
            attempt.record_all(exc)
        raise
    if attempt is None:
        # The results are those of an earlier run: the caller needs the rights for all steps here, too.
        repetition = _Running(broker, principal, run_without_request, queries, warned)
        repetition.authorize_repetition(outcome["results"])
    else:
        attempt.record_all(None)
    results: list[Any] = outcome["results"]
    return results


class Together:
    """A broker within one transaction of its catalog, for verbs that `wire.verbs.require_together` accepts. Calls are noted
    for the audit once it is known whether they took place."""

    def __init__(self, broker: Broker, transaction: Writing) -> None:
        self._broker = broker
        self._catalog = JoinedCatalog(broker.store.catalog, transaction)
        self._store = JoinedStore(broker.store.internals, self._catalog)
        self._calls: list[tuple[Principal, str, str | None, Exception | None]] = []

    @property
    def store(self) -> Store:
        """The store within the transaction, with the features that verbs in a transaction need."""
        return cast(Store, self._store)

    @property
    def guard(self) -> Guard:
        """The guard of the broker."""
        return self._broker.guard

    def require_sound(self) -> None:
        """Raises Conflict if a change failed: the transaction must not be committed."""
        self._catalog.require_sound()

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        """Keep a call for `record_all`."""
        self._calls.append((principal, verb, resource, error))

    def record_all(self, error: Exception | None) -> None:
        """Record all calls. With `error`, which rolled the transaction back, calls that succeeded are recorded with
        it."""
        for principal, verb, resource, call_error in self._calls:
            self._broker.record(principal, verb, resource, call_error or error)


class _Running:
    def __init__(
        self,
        broker: Served,
        principal: Principal,
        run: Run,
        queries: CallersQueries,
        warned: Warned,
        *,
        s_max: float | None = None,
        answer_bytes_max: int | None = None,
    ) -> None:
        self._broker = broker
        self._principal = principal
        self._run = run
        self._queries = queries
        self._warned = warned
        self._clock = broker.store.runtime.clock
        self._s_max = limits.RUN_S_MAX if s_max is None else s_max
        self._until = self._clock.monotonic() + self._s_max
        self._answer_bytes_max = limits.RUN_ANSWER_BYTES_MAX if answer_bytes_max is None else answer_bytes_max
        self._results: dict[int, Any] = {}
        self._named: dict[str, Any] = {}
        self._unpinned: dict[int, str] = {}  # by step number: operations whose results are not recorded yet
        self._bytes = 0

    def results(self) -> list[Any]:
        for step in self._run.steps:
            try:
                self._do(step)
            except (AnabranchError, TimeoutError) as exc:
                raise step.failed(exc) from exc
        return list(self._results.values())

    def authorize_repetition(self, results: Sequence[Any]) -> None:
        """Check what each step needs, given the results of all. Raises PermissionDenied."""
        for step, result in zip(self._run.steps, results, strict=True):
            try:
                self._authorize(step, resolve(step.arguments, self._named))
            except AnabranchError as exc:
                raise step.failed(exc) from exc
            self._keep(step, result)

    def _do(self, step: RunStep) -> None:
        if self._is_over():
            raise TimeoutError(f"the run was stopped before this step: the earlier ones took {self._s_max:g} s")
        arguments = resolve(step.arguments, self._named)
        if self._run.request is not None:
            if not step.takes_request:
                self._run_recorded(step, arguments)
                return
            if self._unpinned:
                self._authorize(step, arguments)
                self._pin()
                arguments = resolve(step.arguments, self._named)
            arguments = {**arguments, "request": self._run.request_of(step)}
        self._keep(step, self._call(step, arguments))

    def _call(self, step: RunStep, arguments: Mapping[str, Any]) -> Any:
        admit = step.number > 1
        if step.verb is QUERY:
            if admit:
                self._broker.guard.admit(self._principal)
            return self._counted(self._rows(**checked_arguments(QUERY, arguments)))
        return self._counted(
            calls.run(self._broker, self._principal, step.verb.name, arguments, warned=self._warned, admit=admit)
        )

    def _rows(self, sql: str, dialect: str | None = None, parameters: Sequence[Any] | None = None) -> list[Any]:
        """The rows of a query, as `encode_results` writes them, within the time of the run."""
        parameter_row = one_row(parameters or ())
        rows, size = list[Any](), self._bytes
        try:
            text = self._queries.translated(sql, dialect, over=self._is_over)
            result = self._queries.run(self._principal, text, parameters=parameter_row, over=self._is_over)
            with closing(result):
                check_result(result.schema)
                for batch in result:
                    for row in encode_results(batch):
                        size += len(row)
                        if size > self._answer_bytes_max:
                            raise TooLarge("the answer of the run", size, self._answer_bytes_max)
                        rows.append(msgspec.json.decode(row))
            return rows
        except Closed:
            if self._is_over():
                raise TimeoutError(f"the run was stopped during this step: it took {self._s_max:g} s") from None
            raise

    def _is_over(self) -> bool:
        return self._clock.monotonic() >= self._until

    def _run_recorded(self, step: RunStep, arguments: Mapping[str, Any]) -> None:
        """A step that takes no request id: its result of an earlier run with this request id, or a new one."""
        operation = f"step {step.number} of a run: {step.verb.name} {_digest(arguments)}"
        self._authorize(step, arguments)
        with self._broker.store.catalog.reading() as txn:
            recorded = txn.request(f"{self._run.request_of(step)}")
        if recorded is None or recorded[0] != operation:
            # If the id is recorded for another operation, `_pin` refuses this one.
            self._keep(step, self._call(step, arguments))
            self._unpinned[step.number] = operation
        else:
            self._keep(step, self._counted_json(json.loads(recorded[1])["result"]))

    def _authorize(self, step: RunStep, arguments: Mapping[str, Any]) -> None:
        if step.verb is QUERY:
            query = checked_arguments(QUERY, arguments)
            self._queries.authorize(self._principal, self._queries.translated(query["sql"], query.get("dialect")))
        for need in step.verb.needs(checked_arguments(step.verb, arguments)):
            calls.authorize(self._broker, self._principal, need, step.verb.name)

    def _pin(self) -> None:
        """Record the results that were read so far, before a step makes a change that may depend on them: a repetition
        then makes the same change. A result over `limits.RUN_PINNED_BYTES_MAX` to which no step refers is not
        recorded."""
        for number, operation in self._unpinned.items():
            step, result = self._run.steps[number - 1], self._results[number]
            if (size := len(to_bytes(result))) > limits.RUN_PINNED_BYTES_MAX:
                if step.name not in self._run.referred:
                    continue
                raise TooLarge(f"with a request id, the result of step {number}", size, limits.RUN_PINNED_BYTES_MAX)
            kept = self._broker.store.changes.apply(
                operation, self._run.request_of(step), partial(_as_result, result), retry=False
            )
            self._keep(step, kept["result"])
        self._unpinned.clear()

    def _keep(self, step: RunStep, result: Any) -> None:
        self._results[step.number] = result
        if step.name is not None:
            self._named[step.name] = result

    def _counted(self, result: Any) -> Any:
        """The result as JSON. Raises TooLarge."""
        if isinstance(result, Iterator):
            return [self._counted_json(to_json(item)) for item in result]
        return self._counted_json(to_json(result))

    def _counted_json(self, found: Any) -> Any:
        self._bytes += len(to_bytes(found))
        if self._bytes > self._answer_bytes_max:
            raise TooLarge("the answer of the run", self._bytes, self._answer_bytes_max)
        return found


def _as_result(result: Any, _txn: Writing, _now: Micros) -> dict[str, Any]:
    return {"result": result}


def _digest(arguments: Any) -> str:
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()
