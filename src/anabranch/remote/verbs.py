"""The methods of a remote store that are verbs of a broker, made from the table of verbs and the store's own signatures.

So a method of the store is remote as soon as it is in the table. What is in neither is refused with the reason in
`NOT_REMOTE`; a test holds the three together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from inspect import signature
from typing import Any, Final, Protocol

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.errors import AppendUncertain, InvalidArgument, NotRemote, StoreUnavailable
from anabranch.remote.connection import Connection
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.store.open_store import OpenStore
from anabranch.streams.arguments import columns_of
from anabranch.streams.policies import Unset
from anabranch.streams.requests import check_request
from anabranch.wire.hints import conform
from anabranch.wire.values import Handle, ThisStore, arguments_to_bytes, from_json, parse_bytes, to_json
from anabranch.wire.verbs import NOUNS, VERBS, StoreVerb
from anabranch.wire.warnings import issue

_STORE: Final = "needs the store's catalog and files: call it where the store can be opened itself"
_BROKER: Final = "is done by the broker itself"

NOT_REMOTE: Final[Mapping[str, str]] = {
    "ephemeral.close": _BROKER,
    "hold": _STORE,
    "job_store": _STORE,
    "jobs.close": _BROKER,
    "notifications.freshen": _BROKER,
    "notifications.listen_to_group": _BROKER,
    "notifications.publish_pending": _BROKER,
    "producers.claim": _BROKER,
    "publish": _STORE,
    "stager": _STORE,
    "subscribers.check": _BROKER,
    "subscribers.open_group": _BROKER,
    "watermarks.note_commit": _BROKER,
}
"""Public methods of a store that a client of a broker can't call, and why."""

_COLUMNS: Final = {("streams.create", "schema"), ("streams.evolve", "schema"), ("streams.add_columns", "columns")}


class Unwrapped(Protocol):
    """What becomes of the handles in answers."""

    def __call__(self, handle: Handle) -> Any: ...


class Caller:
    """Calls verbs over a connection. `wrap` makes an object of a handle; `own` is the store that arguments may name."""

    def __init__(self, connection: Connection, runtime: Runtime, wrap: Unwrapped) -> None:
        self.connection = connection
        self.runtime = runtime
        self._wrap = wrap

    def call(self, verb: StoreVerb, arguments: Mapping[str, Any], own: object = None) -> Any:
        """Call it and return its result; for a streaming verb an iterator. A verb that reads, or takes a request id, is
        sent again while no broker answers. Raises what the verb raises; StoreUnavailable; AppendUncertain if the broker
        was lost while it changed something that it would not recognize."""
        given = dict(arguments)
        progress, started = given.pop("progress", None), given.pop("started", None)
        sent = {name: _sent(verb, name, value, own) for name, value in given.items() if not isinstance(value, Unset)}
        if sent.get("request") is not None:
            check_request(given["request"])
        if _needs_request(verb, sent):
            sent["request"] = token(self.runtime.ids)
        reports = progress is not None or started is not None
        body = arguments_to_bytes({"arguments": sent, "progress": True} if reports else {"arguments": sent})

        def begin() -> tuple[bool, Any, Iterator[Any]]:
            messages = self._messages(verb.name, body, progress, started)
            done, first = next(messages)
            return done, first, messages

        done, first, messages = self._reached(begin, f"whether {verb.name} took place", repeatable=verb.repeatable)
        return _items(done, first, messages) if verb.streaming else first

    def ask(self, name: str, body: bytes, unknown: str, *, repeatable: bool) -> Any:
        """The result of an action with one result. `unknown` begins the message of an AppendUncertain: "whether … took
        place". Raises what `call` raises."""
        return self._reached(lambda: next(self._messages(name, body))[1], unknown, repeatable=repeatable)

    def _reached(self, begin: Callable[[], Any], unknown: str, *, repeatable: bool) -> Any:
        if repeatable:
            return self.connection.retried(begin)
        generation = self.connection.generation
        try:
            return begin()
        except StoreUnavailable as exc:
            if type(exc) is not StoreUnavailable:
                raise
            self.connection.lost(exc, generation)
            raise AppendUncertain(f"{unknown} is unknown: {exc}") from exc

    def _messages(
        self, name: str, body: bytes, progress: Any = None, started: Any = None
    ) -> Iterator[tuple[bool, Any]]:
        """The messages of an answer: each item with False, and the result with True."""
        for data in self.connection.action(name, body):
            message = conform(parse_bytes(data, limits.WIRE_ANSWER_BYTES_MAX), dict, "an answer")
            if "progress" in message and progress is not None:
                progress(*message["progress"])
            elif "started" in message and started is not None:
                started(self.value(message["started"]))
            elif "warning" in message:
                issue(message["warning"])
            elif "item" in message:
                yield False, self.value(message["item"])
            elif "result" in message:
                yield True, self.value(message["result"])
                return
        raise StoreUnavailable("the broker ended its answer too early")

    def value(self, sent: Any) -> Any:
        """What the broker sent, as a value of the store's API."""
        return self.wrapped(from_json(sent))

    def wrapped(self, value: Any) -> Any:
        """The value, or the object that it is a handle of."""
        return self._wrap(value) if isinstance(value, Handle) else value


class Owner(OpenStore):
    """A remote store, as its parts know it."""

    connection: Connection
    caller: Caller

    keep = OpenStore._keep
    forget = OpenStore._forget
    check_open = OpenStore._check_open


def _items(done: bool, item: Any, messages: Iterator[tuple[bool, Any]]) -> Iterator[Any]:
    while not done:
        yield item
        done, item = next(messages)


def _sent(verb: StoreVerb, name: str, value: Any, own: object) -> Any:
    if own is not None and value is own:
        return to_json(ThisStore())
    if (verb.name, name) in _COLUMNS and value is not None:
        value = columns_of(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    try:
        return to_json(value)
    except InvalidArgument as exc:
        raise NotRemote(f"{verb.name} of a broker can't take {name}= as a {type(value).__name__}") from exc


def _needs_request(verb: StoreVerb, sent: Mapping[str, Any]) -> bool:
    """True if the call gets a request id, so that it can be sent again: it takes one, changes something, and has none."""
    if "request" not in verb.parameters or sent.get("request") is not None or not verb.changes:
        return False
    if verb.name.startswith("policies.") and "policy" not in sent:
        return False
    return not (verb.name == "streams.truncate" and sent.get("by") is not None)


class RemoteNoun(Displayed):
    """An attribute of a remote store, such as `streams`, with the methods of the embedded one."""

    def __init__(self, own: Owner) -> None:
        self._caller = own.caller
        self._own = own


def remote_method(name: str) -> Callable[..., Any]:
    """The method `name` (`streams.copy`) of a remote store: signature and documentation of the embedded one."""
    noun, _, method = name.rpartition(".")
    function = getattr(NOUNS[noun], method)
    verb = VERBS.get(name)

    def call(self: RemoteNoun, arguments: Mapping[str, Any]) -> Any:
        if verb is None:
            raise NotRemote(f"{name} {NOT_REMOTE.get(name, _STORE)}")
        return self._caller.call(verb, arguments, self._own)

    return _like(function, call)


def same_method(kind: type, name: str) -> Callable[..., Any]:
    """The method `name` of a remote object that is like a `kind`: it passes its arguments, by name, to `_call`."""
    return _like(getattr(kind, name), lambda self, arguments: self._call(name, **arguments))


def same_property(kind: type, name: str) -> property:
    """The property `name` of a remote object that is like a `kind`: the result of `_call`."""
    return property(lambda self: self._call(name), doc=getattr(kind, name).__doc__)


def _like(function: Callable[..., Any], call: Callable[[Any, Mapping[str, Any]], Any]) -> Callable[..., Any]:
    """A method with the signature and documentation of `function`, which passes its arguments to `call`, by name."""
    shape = signature(function)

    @wraps(function)
    def method(self: Any, *positional: Any, **named: Any) -> Any:
        arguments = shape.bind(self, *positional, **named).arguments
        del arguments[next(iter(arguments))]
        return call(self, arguments)

    return method


def remote_noun(noun: str, base: type[RemoteNoun] = RemoteNoun) -> type[RemoteNoun]:
    """The class of an attribute of a remote store; methods of `base` go before those made from the table."""
    made = {name: remote_method(f"{noun}.{name}") for name in public_methods(NOUNS[noun]) if not hasattr(base, name)}
    return type(f"Remote{noun.capitalize()}", (base,), {"__doc__": NOUNS[noun].__doc__, **made})


def public_methods(kind: type) -> list[str]:
    """The names of the public methods of a class."""
    return [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]
