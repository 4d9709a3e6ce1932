"""Calls a verb of a store with arguments that came from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from anabranch.errors import InvalidArgument
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.store.facade import Store
from anabranch.wire.hints import conform
from anabranch.wire.values import ThisStore, from_json
from anabranch.wire.verbs.verb import StoreVerb, arguments_of


@dataclass(frozen=True, slots=True)
class VerbCall:
    """A verb and its checked arguments. `progress` and `started` are the callbacks of verbs that take them."""

    verb: StoreVerb
    arguments: Mapping[str, Any]
    progress: ProgressCallback = no_progress
    started: Callable[[Any], object] | None = None


_CALLBACKS = ("progress", "started")


def checked_arguments(verb: StoreVerb, given: Any) -> dict[str, Any]:
    """The arguments as Python values of the declared types, from a JSON object. Raises InvalidArgument for a missing or
    unknown argument, and for one of another type."""
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"expected the arguments of {verb.name} as an object, by name")
    parameters, hints = verb.parameters, verb.hints
    arguments = {}
    for name, value in given.items():
        if name not in parameters or name in _CALLBACKS:
            known = ", ".join(each for each in parameters if each not in _CALLBACKS) or "none"
            raise InvalidArgument(f"{verb.name} has no argument '{name:.100}'; it takes: {known}")
        found = from_json(value)
        if not isinstance(found, ThisStore):
            found = conform(found, hints.get(name, Any), f"argument '{name}' of {verb.name}")
        arguments[name] = found
    for name, parameter in parameters.items():
        if parameter.default is Parameter.empty and name not in arguments:
            raise InvalidArgument(f"{verb.name} needs the argument '{name}'")
    return arguments


def call(store: Store, call_: VerbCall) -> Any:
    """Call it, and return what it returns, in a form that can be sent; for a streaming verb an iterator."""
    verb = call_.verb
    arguments = {name: store if isinstance(value, ThisStore) else value for name, value in call_.arguments.items()}
    parameters = verb.parameters
    if "progress" in parameters:
        arguments["progress"] = call_.progress
    if "started" in parameters and call_.started is not None:
        arguments["started"] = call_.started
    noun, _, method = verb.name.rpartition(".")
    if verb.run is not None:
        result = verb.run(store, **arguments)
    elif verb.of is not None:
        opening = {name: arguments.pop(name) for name in arguments_of(verb.of.open) if name in arguments}
        found = getattr(verb.of.open(store, **opening), method)
        result = found(**arguments) if callable(found) else found  # else it is a property
    else:
        result = getattr(getattr(store, noun) if noun else store, method)(**arguments)
    return result if verb.sent is None else verb.sent(result)
