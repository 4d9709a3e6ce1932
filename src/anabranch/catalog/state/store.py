"""What a store keeps about itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.codec import stream_id, stream_id_text
from anabranch.catalog.state.kind import TEXT_KEY, KeyText, StateKind, only_key, state_kind
from anabranch.model.ids import Micros, StreamId

ONLY: Final = "id"
_HEX: Final = re.compile(r"[0-9a-f]{32}\Z")


def is_store_id(text: object) -> bool:
    """True for a text that may be the id of a store."""
    return isinstance(text, str) and bool(_HEX.match(text))


@dataclass(frozen=True, slots=True)
class StoreId:
    """`id`: 128 random bits, 32 hex digits. A restored or rebuilt store has the id of the store that it continues."""

    id: str

    def __post_init__(self) -> None:
        if not is_store_id(self.id):
            raise ValueError("expected the id of a store as 32 hex digits")


STORE_ID: Final[StateKind[str, StoreId]] = state_kind(
    "store_id",
    about="The id of the store, which distinguishes its backups, manifests and archives from those of other stores.",
    key=only_key(ONLY),
    value=StoreId,
    example=(ONLY, StoreId("5d41402abc4b2a767f3c9a1e8b2d4c60")),
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """The folder or URL of the files. `unconfirmed`: it came from a restore or rebuild, and is not contacted until a user
    confirms it."""

    place: str
    unconfirmed: bool = False


ATTACHMENT: Final[StateKind[str, Attachment]] = state_kind(
    "attachment",
    about="The places of attached files.",
    by="the attachment's id, as in the keys of its blobs",
    found_by="its place",
    key=TEXT_KEY,
    value=Attachment,
    lookup=lambda _id, attachment: attachment.place,
    example=("00064a1b2c3d4e5f-0123456789abcdef01234567", Attachment("s3://history/2025", unconfirmed=True)),
)


@dataclass(frozen=True, slots=True)
class DataKeyRow:
    """A data key, wrapped with the master key `master`. `check` shows whether an unwrapped key is the right one: the
    hex of HMAC-SHA256 of `anabranch data key check` under it."""

    id: str
    master: str
    wrapped: bytes
    check: str
    created_at: Micros


def newest(rows: Iterable[DataKeyRow]) -> DataKeyRow:
    """The data key that encrypts new bytes. `rows` must not be empty."""
    return max(rows, key=lambda row: (row.created_at, row.id))


DATA_KEY: Final[StateKind[str, DataKeyRow]] = state_kind(
    "data_key",
    about="The data keys of an encrypted store, each wrapped with a master key. This form can be read without any key.",
    by="the id of the key, 16 hex digits",
    key=TEXT_KEY,
    value=DataKeyRow,
    identity=lambda row: row.id,
    example=(
        "9c1b5e0f3a7d2846",
        DataKeyRow("9c1b5e0f3a7d2846", "2026-a", b"wrapped bytes", "5b" * 32, Micros(1_767_225_600_000_000)),
    ),
)


LAST: Final = "last"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The folder of the manifest that the catalog was rebuilt from. Blobs of no catalog that were begun from `start` to
    `end` are kept until they are released."""

    manifest: str
    start: Micros
    end: Micros


REBUILT: Final[StateKind[str, Rebuilt]] = state_kind(
    "rebuilt",
    about="The times of the blobs that the last rebuild of the catalog reported without adding them.",
    key=only_key(LAST),
    value=Rebuilt,
    example=(
        LAST,
        Rebuilt(
            "manifests/00064a1b2c3d4e5f-0123456789abcdef01234567/",
            Micros(1_767_225_600_000_000),
            Micros(1_767_225_900_000_000),
        ),
    ),
)


class FailureKey(NamedTuple):
    """A task of upkeep (compact, flatten, retain, scale, collect …) for one stream."""

    stream: StreamId
    task: str


@dataclass(frozen=True, slots=True)
class FailureRow:
    """The task has failed `times` times in a row, first at `since` and last at `failed_at`; background upkeep does not
    try it before `next_at`."""

    error: str
    times: int
    since: Micros
    failed_at: Micros
    next_at: Micros


def failures_of(stream: StreamId) -> str:
    """How the keys of a stream's failures begin."""
    return f"{stream_id_text(stream)} "


def _decode(text: str) -> FailureKey:
    ident, _, task = text.partition(" ")
    return FailureKey(stream_id(ident), task)


UPKEEP_FAILURE: Final[StateKind[FailureKey, FailureRow]] = state_kind(
    "upkeep_failure",
    about="Failures of upkeep that no success has followed since.",
    by="the stream's id, 16 hex digits, a space and the task",
    found_by="the task",
    key=KeyText(lambda key: f"{failures_of(key.stream)}{key.task}", _decode),
    value=FailureRow,
    lookup=lambda key, _failure: key.task,
    example=(
        FailureKey(StreamId(0x2BCD55E1E5C62EE7), "compact"),
        FailureRow(
            "CorruptBlob: blob commits/… is corrupt: its checksum does not match its bytes",
            2,
            Micros(1_767_225_600_000_000),
            Micros(1_767_225_660_000_000),
            Micros(1_767_225_780_000_000),
        ),
    ),
)
