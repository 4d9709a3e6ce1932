"""What a call needs to be allowed: operations on the resources that its arguments name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anabranch.deployments.files import kind_of_file
from anabranch.model.cut import StreamCut
from anabranch.model.pointer import EventPointer
from anabranch.model.stream_range import StreamRange

Operation = Literal["read", "write", "create", "manage", "admin", "code"]
"""See `anabranch.security.guard.Operation`."""

Kind = Literal["stream", "new", "moved", "scope", "job", "store", "place", "query"]
"""What a need's resource is: `stream` an existing one (name, alias, former name, id, range, pointer); `new` the name of
one to be created; `moved` the name that a stream gets in another scope, checked as an existing and as a new one; `scope` a scope's name; `job` a job's id; `store` the whole store; `place` a folder or address that
the server would open; `query` a deployed query's name: nothing is needed if the query has no Python code."""

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Need:
    """The caller must be allowed `operation` on the resource. `resource` is as the caller gave it: names are resolved
    by whoever authorizes."""

    operation: Operation
    kind: Kind
    resource: Any = None


Needs = Callable[[Arguments], list[Need]]


def stream(operation: Operation, *names: str) -> Needs:
    """The operation on the streams in these arguments. A call without one concerns the whole store."""

    def needs(arguments: Arguments) -> list[Need]:
        return [_on_stream(operation, arguments.get(name)) for name in names]

    return needs


def pointed(operation: Operation, name: str) -> Needs:
    """The operation on the stream of the event pointer in this argument. Raises InvalidPointer."""

    def needs(arguments: Arguments) -> list[Need]:
        found = arguments.get(name)
        return [_on_stream(operation, EventPointer.parse(found) if isinstance(found, str) else found)]

    return needs


def upkeep(name: str = "stream") -> Needs:
    """`manage` for upkeep of one stream, `admin` for that of the whole store."""

    def needs(arguments: Arguments) -> list[Need]:
        found = arguments.get(name)
        return [Need("admin", "store") if found is None else _on_stream("manage", found)]

    return needs


def new(name: str) -> Needs:
    """`create` on the name in this argument."""
    return lambda arguments: [Need("create", "new", arguments.get(name))]


def scope(operation: Operation, *names: str) -> Needs:
    """The operation on the scopes in these arguments."""
    return lambda arguments: [Need(operation, "scope", arguments.get(name)) for name in names]


def job(operation: Operation) -> Needs:
    """The operation on the target of the job in the argument `job`."""
    return lambda arguments: [Need(operation, "job", arguments.get("job"))]


def store(operation: Operation) -> Needs:
    """The operation on the whole store."""
    return lambda arguments: [Need(operation, "store")]


def places(*names: str) -> Needs:
    """That the server may open the places in these arguments."""
    return lambda arguments: [Need("admin", "place", arguments[name]) for name in names if arguments.get(name)]


def code(files: str, query: str | None = None) -> Needs:
    """`code` on the store, for Python code among the files in the argument `files`. Without that argument, for the code that
    the present version of the query in the argument `query` has."""

    def needs(arguments: Arguments) -> list[Need]:
        given = arguments.get(files)
        if given is not None:
            return [Need("code", "store")] if any(kind_of_file(name) == "wheel" for name in given) else []
        return [] if query is None else [Need("code", "query", arguments.get(query))]

    return needs


def each(*several: Needs) -> Needs:
    """All of these needs."""
    return lambda arguments: [need for needs in several for need in needs(arguments)]


def of_each(operation: Operation, name: str) -> Needs:
    """The operation on every stream of the list in this argument."""

    def needs(arguments: Arguments) -> list[Need]:
        found = arguments.get(name)
        several = found if isinstance(found, list | tuple) else [found]
        return [_on_stream(operation, one) for one in several]

    return needs


def nothing(arguments: Arguments) -> list[Need]:
    """Nothing: what the caller sees is chosen item by item, or the verb has its own checks."""
    del arguments
    return []


def if_(condition: Callable[[Arguments], Any], then: Needs) -> Needs:
    """What a call needs if its arguments meet a condition."""
    return lambda arguments: then(arguments) if condition(arguments) else []


def if_given(name: str, then: Needs, otherwise: Needs) -> Needs:
    """What the call needs with the argument, and without it."""
    return lambda arguments: (then if name in arguments else otherwise)(arguments)


def moved(stream_argument: str, scope_argument: str) -> Needs:
    """`create` of the stream's name in another scope."""

    def needs(arguments: Arguments) -> list[Need]:
        return [Need("create", "moved", (arguments.get(stream_argument), arguments.get(scope_argument)))]

    return needs


def _on_stream(operation: Operation, found: Any) -> Need:
    if found is None:
        return Need(operation, "store")
    if isinstance(found, StreamRange | EventPointer | StreamCut):
        found = found.stream
    return Need(operation, "stream", found)
