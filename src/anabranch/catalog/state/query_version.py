"""What deployed queries run: their versions and files, saved templates, and the keys whose signatures are accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from anabranch.catalog.state.codec import bytes_member, codec_of
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, parts_key, state_kind, versioned
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
    about="The versions of deployed queries.",
    by="the query's name, `/`, and the version's number, 8 digits",
    key=parts_key(VersionKey, "{}/{:08}", str, int),
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


QUERY_CONTENT: Final[StateKind[str, bytes]] = state_kind(
    "query_content",
    about="The contents of the files of deployed queries, once for all versions that have the same.",
    by="the SHA-256 of the content, in hex",
    key=TEXT_KEY,
    value=versioned(bytes_member("content"), FORMAT, "file of a query"),
    example=("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", b"{}"),
)


@dataclass(frozen=True, slots=True)
class SavedTemplate:
    """The statements of a template, as of when it was saved last."""

    name: str
    text: str
    saved_at: Micros


QUERY_TEMPLATE: Final[StateKind[str, SavedTemplate]] = state_kind(
    "query_template",
    about="Templates of queries that users have saved: statements with parameters, by name.",
    by="the template's name",
    key=TEXT_KEY,
    value=versioned(codec_of(SavedTemplate), FORMAT, "template of a query"),
    identity=lambda row: row.name,
    example=(
        "hot",
        SavedTemplate(
            "hot",
            "DECLARE PARAMETER source STREAM;\nCREATE STREAM iot.hot AS SELECT * FROM STREAM :source WHERE celsius > 30;",
            Micros(1_767_225_660_000_000),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """An Ed25519 public key of 32 bytes, in hex. `label` says whose it is."""

    key: str
    label: str
    added_at: Micros


TRUSTED_KEY: Final[StateKind[str, TrustedKey]] = state_kind(
    "trusted_key",
    about=(
        "The public keys whose signatures a store accepts on deployed queries. With any, every deployed query "
        "has to be signed."
    ),
    by="the public key, in hex",
    key=TEXT_KEY,
    value=versioned(codec_of(TrustedKey), FORMAT, "trusted key"),
    identity=lambda row: row.key,
    example=(
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        TrustedKey(
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "release",
            Micros(1_767_225_660_000_000),
        ),
    ),
)
