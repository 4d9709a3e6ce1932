"""The catalog's rows of deployed queries and of their versions: found and stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.query import QUERY, QueryRow
from anabranch.catalog.state.query_version import QUERY_VERSION, QueryVersion, VersionKey, versions_prefix
from anabranch.deployments.files import drop_contents
from anabranch.errors import QueryNotFound
from anabranch.model.names import INTERNAL_SCOPE, StreamName, check_plain_name

__all__ = [
    "all_queries",
    "check_query_name",
    "drop_query",
    "log_stream",
    "need_query",
    "need_version",
    "next_number",
    "put_query",
    "put_version",
    "subject_of",
    "versions_of",
]

_LOG: Final = "query."  # how the names of the streams of logs begin


def check_query_name(name: str) -> str:
    """Return `name` if it is valid for a query. Raises InvalidArgument."""
    return check_plain_name(name, "query", prefix=_LOG)


def log_stream(name: str) -> StreamName:
    """The stream of a query's log."""
    return StreamName(INTERNAL_SCOPE, f"{_LOG}{name}")


def subject_of(name: str) -> str:
    """The subject of a transaction on one query; see `Catalog.writing`."""
    return f"{QUERY.name} {name}"


def all_queries(txn: Reading) -> list[QueryRow]:
    """All queries, by name."""
    return [row for _, row in txn.states(QUERY)]


def need_query(txn: Reading, name: str) -> QueryRow:
    """One query. Raises QueryNotFound."""
    row = txn.state(QUERY, name)
    if row is None:
        raise QueryNotFound(name)
    return row


def put_query(txn: Writing, row: QueryRow) -> None:
    """Store a query."""
    txn.put_state(QUERY, row.name, row)


def drop_query(txn: Writing, name: str) -> None:
    """Remove a query with its versions, and with files that no other version has."""
    _drop_versions(txn, versions_of(txn, name))
    txn.drop_state(QUERY, name)


def versions_of(txn: Reading, name: str) -> list[QueryVersion]:
    """The versions of a query that are kept, oldest first."""
    return [version for _, version in txn.states(QUERY_VERSION, prefix=versions_prefix(name))]


def need_version(txn: Reading, name: str, number: int) -> QueryVersion:
    """One version. Raises QueryNotFound."""
    version = txn.state(QUERY_VERSION, VersionKey(name, number))
    if version is None:
        raise QueryNotFound(name, number)
    return version


def next_number(txn: Reading, name: str) -> int:
    """The number of the version that comes next."""
    return max((each.number for each in versions_of(txn, name)), default=0) + 1


def put_version(txn: Writing, version: QueryVersion) -> None:
    """Store a version, and remove the oldest beyond `limits.DEPLOYMENT_VERSIONS_MAX`. The contents of its files are there
    already."""
    txn.put_state(QUERY_VERSION, VersionKey(version.query, version.number), version)
    _drop_versions(txn, versions_of(txn, version.query)[: -limits.DEPLOYMENT_VERSIONS_MAX])


def _drop_versions(txn: Writing, versions: Sequence[QueryVersion]) -> None:
    for version in versions:
        txn.drop_state(QUERY_VERSION, VersionKey(version.query, version.number))
    drop_contents(txn, versions)
