"""Calls management verbs: every front end (Flight, gRPC, HTTP) calls them by `run`, which checks the caller's rights.

Names are resolved first, so that rights are checked on the stream to which an alias or former name refers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from anabranch.catalog.state.query import QUERY
from anabranch.core.redact import shown_address
from anabranch.deployments.record import need_version
from anabranch.errors import (
    AnabranchError,
    InvalidArgument,
    InvalidName,
    JobNotFound,
    ScopeNotFound,
    ScopeRenamed,
    StreamNotFound,
    StreamRenamed,
)
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import StreamInfo
from anabranch.model.warn import Warned, issue_here, warnings_to
from anabranch.security.guard import Guard, Operation, Principal
from anabranch.store.facade import Store
from anabranch.streams.arguments import StreamKey, stream_key
from anabranch.wire.verbs import Need, StoreVerb, VerbCall, call, checked_arguments, find_verb


class Served(Protocol):
    """What verbs are called on: a broker, or `anabranch.server.steps.Together`."""

    @property
    def store(self) -> Store:
        """The store."""
        ...

    @property
    def guard(self) -> Guard:
        """Who may use it."""
        ...

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        """See `Guard.record`."""
        ...


def run(
    broker: Served,
    principal: Principal,
    verb: str,
    arguments: Mapping[str, Any],
    *,
    progress: ProgressCallback = no_progress,
    started: Callable[[Any], object] | None = None,
    warned: Warned = issue_here,
    admit: bool = True,
) -> Any:
    """Authorize the call, carry it out, record it, and return its result as a value that `wire.values.to_json` takes;
    for a streaming verb an iterator, whose items are made while they are taken. `arguments` are JSON, by name. `warned`
    gets the warnings that the verb issues before it returns; by default they are issued in this process. With
    `admit=False` the caller has already counted the call.

    Raises InvalidArgument, PermissionDenied, RateLimited, and what the verb raises."""
    found = find_verb(verb)
    values = checked_arguments(found, arguments)
    needs = found.needs(values)
    resource: str | None = None
    for number, need in enumerate(needs):
        authorized = authorize(broker, principal, need, verb)
        resource = authorized if number == 0 else resource
    if admit:
        broker.guard.admit(principal)
    try:
        with warnings_to(warned):
            result = call(broker.store, VerbCall(found, values, progress, started))
    except Exception as exc:
        _record(broker, principal, found, values, resource, exc)
        raise _without_hints(broker, principal, exc) from exc.__cause__
    _record(broker, principal, found, values, resource, None)
    return result if found.shown is None else _shown(broker, principal, found, result)


def authorize(broker: Served, principal: Principal, need: Need, verb: str = "") -> str | None:
    """Check one need, and return its resource under its present name; None for the store. Raises PermissionDenied,
    InvalidName."""
    if need.kind == "place":
        broker.guard.authorize_place(principal, str(need.resource), verb=verb)
        return shown_address(str(need.resource))
    if need.kind == "query" and not _has_python(broker.store, need.resource):
        return None
    resource = resolve(broker.store, need)
    broker.guard.authorize(principal, need.operation, resource, verb=verb)
    return resource


def allowed_stream(
    broker: Served, principal: Principal, stream: StreamKey, operation: Operation, verb: str
) -> StreamInfo:
    """The stream of this name or id, after checking that the caller may do this to it. Raises PermissionDenied, StreamNotFound,
    InvalidName."""
    authorize(broker, principal, Need(operation, "stream", stream), verb)
    try:
        return broker.store.streams.get(stream_key(stream))
    except Exception as exc:
        raise _without_hints(broker, principal, exc) from None


def resolve(store: Store, need: Need) -> str | None:
    """The resource of a need by its present name: `scope/stream`, `scope/` or None for the store. The name of a
    stream or scope that doesn't exist is returned unchanged, so that a caller without the right does not learn whether
    it exists. Raises InvalidName."""
    match need.kind:
        case "store" | "query":
            return None
        case "stream":
            return _stream(store, need.resource)
        case "new":
            return str(StreamName.parse(need.resource))
        case "moved":
            name, scope = need.resource
            return f"{check_scope(scope)}/{(_stream(store, name) or '').partition('/')[2]}"
        case "scope":
            return f"{_scope(store, need.resource)}/"
        case "job":
            return _job_target(store, need.resource)
        case _:
            raise AssertionError(need.kind)


def _stream(store: Store, stream: Any) -> str | None:
    try:
        return str(store.streams.get(stream_key(stream)).name)
    except StreamRenamed as exc:
        return exc.name
    except (StreamNotFound, ScopeNotFound):
        # An unknown id could be any stream's: only a caller with rights on the whole store learns that it is unknown.
        return None if isinstance(stream, int) else str(StreamName.parse(stream))


def _scope(store: Store, scope: Any) -> str:
    if not isinstance(scope, str):
        raise InvalidName("expected the name of a scope")
    try:
        return store.scopes.get(scope).name
    except ScopeRenamed as exc:
        return exc.name
    except ScopeNotFound:
        return scope


def _job_target(store: Store, job: Any) -> str | None:
    if not isinstance(job, str):
        raise InvalidArgument("expected the id of a job")
    try:
        row = store.jobs.get(job).row()
        return str(StreamName.parse(row.target)) if "/" in row.target else f"{row.target}/"
    except (JobNotFound, InvalidName):  # the target of an archive is a place: the right is checked on the store
        return None


def _has_python(store: Store, query: Any) -> bool:
    """Whether the present version of a query has Python code. False for a query that doesn't exist."""
    with store.catalog.reading() as txn:
        row = txn.state(QUERY, query) if isinstance(query, str) else None
        return row is not None and need_version(txn, row.name, row.version).has_python


def _record(
    broker: Served, principal: Principal, verb: StoreVerb, values: Mapping[str, Any], resource: str | None, exc: Any
) -> None:
    if verb.changes:
        broker.record(principal, verb.name, resource, exc)


def _shown(broker: Served, principal: Principal, verb: StoreVerb, result: Any) -> Any:
    """The result of a verb that lists, with only the items that the caller may see."""
    shown = verb.shown
    assert shown is not None
    if broker.guard.allows(principal, "admin", None):
        return result

    def allowed(item: Any) -> bool:
        need = shown(item)
        try:
            return broker.guard.allows(principal, need.operation, resolve(broker.store, need))
        except AnabranchError:
            return False

    if isinstance(result, Iterator):
        return (item for item in result if allowed(item))
    if isinstance(result, Mapping):
        return {key: value for key, value in result.items() if allowed((key, value))}
    return type(result)(item for item in result if allowed(item))


def _without_hints(broker: Served, principal: Principal, exc: Exception) -> Exception:
    """The error without its hint at similar names, which a caller without the right to read all may not see."""
    if type(exc) is StreamNotFound and not broker.guard.allows(principal, "read", None):
        return StreamNotFound(exc.stream)
    if type(exc) is ScopeNotFound and not broker.guard.allows(principal, "read", None):
        return ScopeNotFound(exc.scope)
    return exc
