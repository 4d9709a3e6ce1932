"""The versions of deployed queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from anabranch.catalog.state.codec import codec_of
from anabranch.catalog.state.kind import StateKind, numbered_key, state_kind, versioned
from anabranch.model.ids import Micros

FileKind: TypeAlias = Literal["wheel", "wasm", "resource"]
FORMAT: Final = 1


class VersionKey(NamedTuple):
    """The `number`th version of a query, from 1 on."""

    query: str
    number: int


@dataclass(frozen=True, slots=True)
class QueryFile:
    """A file that belongs to a version: a wheel of Python code, a WebAssembly module, or a resource that code reads.
    `digest` is the SHA-256 of its content, in hex, under which the content is kept; `size` is in bytes."""

    name: str
    kind: FileKind
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class QueryVersion:
    """What a driver runs: statements, the values of their parameters, the files that they use, by name, and the time between
    micro-batches of those without one of their own. `digest` is the SHA-256 of these, in hex. `signature` is one of the
    statements, parameters and files; see `anabranch.deployments.signatures`."""

    query: str
    number: int
    digest: str
    text: str
    parameters: Mapping[str, str]
    trigger_us: int
    created_at: Micros
    files: tuple[QueryFile, ...] = ()
    signature: str | None = None

    @property
    def has_python(self) -> bool:
        """True if it brings Python code, which runs in a driver of its own."""
        return any(file.kind == "wheel" for file in self.files)


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
            (
                QueryFile(
                    "model.json",
                    "resource",
                    "93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476",
                    512,
                ),
            ),
        ),
    ),
)
