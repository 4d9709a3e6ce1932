"""Several calls of a broker in one request, where later ones use results of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.core.display import Displayed
from anabranch.remote.verbs import Caller
from anabranch.runtime.ids import token
from anabranch.wire.steps import REF, RUN, verb_of_step
from anabranch.wire.values import arguments_to_bytes, to_json


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result that a step will have, for arguments of later ones; `result["id"]` is a member of it."""

    path: str

    def __getitem__(self, member: str | int) -> StepResult:
        return StepResult(f"{self.path}.{member}")


class Steps(Displayed):
    """Calls that are made one after another by one request, so that their answers need no round trip each:

        steps = store.steps()
        tail = steps.call("cuts.tail", name="iot/raw")
        steps.call("streams.truncate", name="iot/raw", cut=tail)
        steps.run()

    Each has the rights and the effect that it would have alone. They take place one after another, each durable by itself,
    or with `run(transaction=True)` together. At most `limits.RUN_STEPS_MAX`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._steps: list[dict[str, Any]] = []

    def call(self, verb: str, /, **arguments: Any) -> StepResult:
        """Add a call of a verb such as `streams.copy`, with the arguments of that method by name; or of `query`, which
        returns the rows of `sql`, in a `dialect` if one is given, with the values of its `parameters`. Raises
        InvalidArgument for an unknown verb."""
        verb_of_step(verb)
        name = f"s{len(self._steps) + 1}"
        sent = {argument: _sent(value) for argument, value in arguments.items()}
        self._steps.append({"name": name, "call": verb, "arguments": sent})
        return StepResult(name)

    def run(self, *, transaction: bool = False, request: str | None = None) -> list[Any]:
        """Make the calls, and return their results in order; a list for a verb that returns one bit by bit.

        The first call that fails ends the run: its error is raised, with the step in its message and as its field
        `step`; the earlier calls stay done. With `transaction` all are one transaction of the catalog: after an error
        nothing is done, and each reads what the earlier ones have changed. Other changes of the store wait for it, so
        it takes at most `limits.RUN_TRANSACTION_S_MAX`, and only verbs that change nothing but the catalog;
        InvalidArgument for others, before anything is done. Called again with the same request id, no change is
        repeated. Without one, and if all verbs can be repeated, it gets one, and is sent again while no broker answers.
        Raises what the verbs raise, StoreUnavailable; AppendUncertain if the broker was lost while it ran what can't be
        repeated; TimeoutError if it takes longer than `limits.RUN_S_MAX`, TooLarge for an answer over
        `limits.RUN_ANSWER_BYTES_MAX`."""
        repeatable = transaction or all(verb_of_step(step["call"]).repeatable for step in self._steps)
        if request is None and repeatable:
            request = token(self._caller.runtime.ids)
        arguments: dict[str, Any] = {"steps": self._steps}
        if transaction:
            arguments["transaction"] = True
        if request is not None:
            arguments["request"] = request
        body = arguments_to_bytes({"arguments": arguments})
        found = self._caller.ask(RUN, body, "which steps of the run took place", repeatable=repeatable)
        return [self._caller.wrapped(each) for each in found]


def _sent(value: Any) -> Any:
    if isinstance(value, StepResult):
        return {REF: value.path}
    if isinstance(value, list):
        return [_sent(each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _sent(each) for name, each in value.items()}
    return to_json(value)
