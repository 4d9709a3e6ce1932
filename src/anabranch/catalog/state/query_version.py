"""The versions of deployed queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.codec import codec_of
from anabranch.catalog.state.kind import StateKind, numbered_key, state_kind, versioned
from anabranch.model.ids import Micros

FORMAT: Final = 1


class VersionKey(NamedTuple):
    """The `number`th version of a query, from 1 on."""

    query: str
    number: int


@dataclass(frozen=True, slots=True)
class QueryVersion:
    """What a driver runs: statements, the values of their parameters, and the time between micro-batches of those
    without one of their own. `digest` is the SHA-256 of these, in hex."""

    query: str
    number: int
    digest: str
    text: str
    parameters: Mapping[str, str]
    trigger_us: int
    created_at: Micros


def versions_prefix(query: str) -> str:
    """How the keys of all versions of a query begin."""
    return f"{query}/"


QUERY_VERSION: Final[StateKind[VersionKey, QueryVersion]] = state_kind(
    "query_version",
    by="the query's name, `/`, and the version's number, 8 digits",
    key=numbered_key(VersionKey, lambda key: key),
    value=versioned(codec_of(QueryVersion), FORMAT, "version of a query"),
    identity=lambda version: VersionKey(version.query, version.number),
    example=(
        VersionKey("means", 2),
        QueryVersion(
            "means",
            2,
            "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7",
            "CREATE STREAM iot.means AS SELECT window.end AS closed, avg(celsius) AS celsius "
            "FROM STREAM iot.sensors GROUP BY window(at, :size)",
            {"size": "10 seconds"},
            1_000_000,
            Micros(1_767_225_660_000_000),
        ),
    ),
)
