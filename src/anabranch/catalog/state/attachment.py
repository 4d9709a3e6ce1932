"""The places of attached files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind


@dataclass(frozen=True, slots=True)
class Attachment:
    """The folder or URL of the files. `unconfirmed`: it came from a restore or rebuild, and is not contacted until a user
    confirms it."""

    place: str
    unconfirmed: bool = False


ATTACHMENT: Final[StateKind[str, Attachment]] = state_kind(
    "attachment",
    by="the attachment's id, as in the keys of its blobs",
    found_by="its place",
    key=TEXT_KEY,
    value=Attachment,
    lookup=lambda _id, attachment: attachment.place,
    example=("00064a1b2c3d4e5f-0123456789abcdef01234567", Attachment("s3://history/2025", unconfirmed=True)),
)
