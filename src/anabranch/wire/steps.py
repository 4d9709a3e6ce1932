"""Several calls of verbs in one request: steps, whose arguments may refer to results of earlier steps.

    {"steps": [
        {"name": "cut", "call": "cuts.tail", "arguments": {"name": "iot/raw"}},
        {"call": "streams.truncate", "arguments": {"name": "iot/raw", "cut": {"$ref": "cut"}}}
    ]}

A step may also call `query`, which runs SQL and returns its rows.

`{"$ref": "job.id"}` stands for the member `id` of the result of the step `job`; numbers count items of a list from 0.
With `"transaction": true` the steps take place together or not at all.
This module parses and checks runs; `anabranch.server.steps` calls the verbs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch import limits
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.streams.requests import check_request
from anabranch.wire.values import TYPE
from anabranch.wire.verbs import QUERY, StoreVerb, find_verb, require_together

RUN: Final = "run"
"""The name of a run in calls that name a verb."""

REF: Final = "$ref"
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_RUN_MEMBERS: Final = ("steps", "request", "transaction")
_MEMBERS: Final = {"name", "call", "arguments"}
_NUMBER_CHARS: Final = 4  # room for the step number that ends its request id, such as `/99`


@dataclass(frozen=True, slots=True)
class RunStep:
    """One call. `number` counts from 1; `refs` are the names of the steps that its arguments refer to."""

    number: int
    name: str | None
    verb: StoreVerb
    arguments: Mapping[str, Any]
    refs: frozenset[str]

    @property
    def takes_request(self) -> bool:
        """True if the verb makes a change and takes a request id."""
        return self.verb.changes and "request" in self.verb.parameters

    def failed(self, error: AnabranchError | TimeoutError) -> Exception:
        """The error with this step in its message, and as its field `step`. Its class and fields stay."""
        copy = type(error).__new__(type(error))
        copy.__dict__.update(vars(error))
        copy.args = (f"step {self.number}, {self.verb.name}: {error}",)
        copy.__dict__["step"] = self.number
        return copy


@dataclass(frozen=True, slots=True)
class Run:
    """Steps in order. `request` is the request id of the whole run. With `transaction`, the steps are applied in one
    transaction, all or none."""

    steps: tuple[RunStep, ...]
    request: str | None
    transaction: bool = False

    def request_of(self, step: RunStep) -> str | None:
        """The request id of one step."""
        return None if self.request is None else f"{self.request}/{step.number}"

    @property
    def as_json(self) -> list[Any]:
        """The names, verbs and arguments of the steps, to tell whether two runs are the same."""
        return [[step.name, step.verb.name, step.arguments] for step in self.steps]

    @property
    def referred(self) -> frozenset[str]:
        """The names of the steps to whose results other steps refer."""
        return frozenset().union(*(step.refs for step in self.steps))


def parse_run(arguments: Any) -> Run:
    """A run from JSON: `steps`, and optionally `request` and `transaction`. Checks all that can be
    checked before the first step is called. Raises InvalidArgument."""
    if not isinstance(arguments, Mapping) or not isinstance(arguments.get("steps"), list):
        raise InvalidArgument('expected a run as an object with a list of steps: {"steps": [{"call": VERB, …}, …]}')
    if unknown := next((name for name in arguments if name not in _RUN_MEMBERS), None):
        raise InvalidArgument(f"a run has the members steps, request and transaction, not '{unknown:.100}'")
    given = arguments["steps"]
    if not 1 <= len(given) <= limits.RUN_STEPS_MAX:
        raise InvalidArgument(f"expected 1 to {limits.RUN_STEPS_MAX} steps in a run, got {len(given)}")
    request = check_request(arguments.get("request"))
    if request is not None and len(request) > limits.REQUEST_CHARS_MAX - _NUMBER_CHARS:
        raise InvalidArgument(
            f"the request id of a run has at most {limits.REQUEST_CHARS_MAX - _NUMBER_CHARS} characters"
        )
    transaction = arguments.get("transaction", False)
    if not isinstance(transaction, bool):
        raise InvalidArgument("expected true or false as 'transaction' of a run")
    steps: list[RunStep] = []
    for number, each in enumerate(given, 1):
        steps.append(_step(number, each, {step.name for step in steps}))
        if transaction:
            _check_together(steps[-1])
        elif request is not None:
            _check_repeatable(steps[-1])
    return Run(tuple(steps), request, transaction)


def verb_of_step(name: str) -> StoreVerb:
    """The verb of this name that a step may call; `query` runs SQL. Raises InvalidArgument."""
    return QUERY if name == QUERY.name else find_verb(name)


def resolve(value: Any, results: Mapping[str, Any]) -> Any:
    """The value with every reference replaced. Raises InvalidArgument for a member that does not
    exist."""
    if isinstance(value, Mapping):
        if value.keys() == {REF}:
            return _referred(value[REF], results)
        return {name: resolve(each, results) for name, each in value.items()}
    if isinstance(value, list):
        return [resolve(each, results) for each in value]
    return value


def _step(number: int, given: Any, known: set[str | None]) -> RunStep:
    what = f"step {number}"
    if not isinstance(given, Mapping) or not isinstance(given.get("call"), str):
        raise InvalidArgument(f"expected {what} as an object with the member 'call', the name of a verb")
    if unknown := next((name for name in given if name not in _MEMBERS), None):
        raise InvalidArgument(f"{what} has the members call, arguments and name, not '{unknown:.100}'")
    name, arguments = given.get("name"), given.get("arguments", {})
    if not isinstance(arguments, Mapping):
        raise InvalidArgument(f"expected the arguments of {what} as an object, by name")
    if name is not None and (not isinstance(name, str) or not _NAME.match(name) or len(name) > limits.NAME_CHARS_MAX):
        raise InvalidArgument(f"expected letters, digits and '_' as the name of {what}")
    if name is not None and name in known:
        raise InvalidArgument(f"{what} has the name '{name}' of an earlier one: rename it")
    try:
        verb = verb_of_step(given["call"])
    except InvalidArgument as exc:
        raise InvalidArgument(f"{what}: {exc}") from exc
    refs = frozenset(_refs(arguments, what))
    if missing := next((ref for ref in sorted(refs) if ref not in known), None):
        raise InvalidArgument(f"{what} refers to '{missing:.100}', but no earlier step has that name")
    return RunStep(number, name, verb, arguments, refs)


def _refs(value: Any, what: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        if value.keys() == {REF}:
            if not isinstance(value[REF], str):
                raise InvalidArgument(f'{what} has a reference that is not text: expected {{"{REF}": "STEP.MEMBER"}}')
            yield value[REF].partition(".")[0]
            return
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _refs(each, what)


def _check_together(step: RunStep) -> None:
    try:
        require_together(step.verb, step.arguments)
    except InvalidArgument as exc:
        raise InvalidArgument(f"step {step.number}: {exc}") from exc


def _check_repeatable(step: RunStep) -> None:
    if not step.verb.repeatable:
        raise InvalidArgument(
            f"step {step.number}: {step.verb.name} can't be repeated, so the run takes no request id or Idempotency-Key"
        )
    if "request" in step.arguments:
        raise InvalidArgument(f"step {step.number} has a request id, in addition to that of the run")


def _referred(text: str, results: Mapping[str, Any]) -> Any:
    name, *members = text.split(".")
    found = results[name]
    for member in members:
        inner = found.get("items", found) if isinstance(found, Mapping) and TYPE in found else found
        if isinstance(inner, list) and member.isascii() and member.isdigit() and int(member) < len(inner):
            found = inner[int(member)]
        elif isinstance(found, Mapping) and member in found:
            found = found[member]
        else:
            known = (
                f"0 to {len(inner) - 1}"
                if isinstance(inner, list)
                else ", ".join(map(str, found))
                if isinstance(found, Mapping)
                else "nothing"
            )
            raise InvalidArgument(f"'{text:.100}' refers to '{member:.100}', but there is only: {known:.300}")
    return found
