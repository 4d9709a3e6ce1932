"""Which stream holds the results of a deployed query, when waiting for it is in vain, and reading it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from anabranch import limits
from anabranch.deployments.info import QueryInfo
from anabranch.errors import InvalidArgument, NoResultsYet, ScopeNotFound, StreamNotFound
from anabranch.model.cut import HEAD, TAIL
from anabranch.reading.bounds import Place
from anabranch.runtime.tasks import Tasks

__all__ = ["check_may_come", "open_results", "result_stream"]

R = TypeVar("R")


def result_stream(info: QueryInfo, result: str | None = None) -> str | None:
    """The name of a stream of results; None as long as no host has read the statements.

    `result` says which one: its name, its name without the scope, or the number of its statement from 1. It may be left
    out where there is only one. Raises InvalidArgument."""
    names = info.results
    if not names:
        return None
    if result is None:
        if len(names) == 1:
            return names[0]
        raise InvalidArgument(f"query '{info.name}' has several results; name one of: {', '.join(names)}")
    short = [name for name in names if name.partition("/")[2] == result]
    if result in names:
        return result
    if len(short) == 1:
        return short[0]
    if result.isascii() and result.isdigit() and len(result) < 6 and 1 <= int(result) <= len(names):
        return names[int(result) - 1]
    raise InvalidArgument(f"query '{info.name}' has no result '{result:.100}'; it has: {', '.join(names)}")


def check_may_come(info: QueryInfo) -> None:
    """Raise NoResultsYet if waiting for results is in vain: the query has failed, or is not to run."""
    if info.state == "failed":
        raise NoResultsYet(info.name, "failed", info.error)
    if info.wanted != "running":
        raise NoResultsYet(info.name, "deleted" if info.wanted == "deleted" else info.state)


def open_results(
    get: Callable[[str], QueryInfo],
    open_reader: Callable[..., R],
    tasks: Tasks,
    name: str,
    result: str | None,
    *,
    start: Place,
    follow: bool,
    **options: Any,
) -> R:
    """A reader of a query's results; see `DeployedQueries.results`. `get` finds the query, and `open_reader` opens a reader
    of a stream with the `options`."""
    waited = False
    while True:
        info = get(name)
        stream = result_stream(info, result)
        if stream is not None:
            try:
                # All results of a query that had none at the call are later than the call: its tail is their head.
                place = HEAD if waited and start in (TAIL, TAIL.value) else start
                return open_reader(stream, start=place, follow=follow, **options)
            except (ScopeNotFound, StreamNotFound) as exc:
                if type(exc) not in (ScopeNotFound, StreamNotFound):
                    raise
        check_may_come(info)
        if not follow:
            raise NoResultsYet(info.name, info.state)
        waited = True
        tasks.sleep(limits.FOLLOW_AWAIT_S)
