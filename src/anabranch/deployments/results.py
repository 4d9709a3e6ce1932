"""Which stream holds the results of a deployed query, and when waiting for it is in vain."""

from __future__ import annotations

from anabranch.deployments.info import QueryInfo
from anabranch.errors import InvalidArgument, NoResultsYet

__all__ = ["check_may_come", "result_stream"]


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
    """Raise NoResultsYet if results that are not there will not come by waiting: the query has failed, or is not to
    run."""
    if info.state == "failed":
        raise NoResultsYet(info.name, "failed", info.error)
    if info.wanted != "running":
        raise NoResultsYet(info.name, "deleted" if info.wanted == "deleted" else info.state)
