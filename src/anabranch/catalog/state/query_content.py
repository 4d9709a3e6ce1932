"""The contents of the files of deployed queries, once for all versions that have the same."""

from __future__ import annotations

from typing import Final

from anabranch.catalog.state.codec import bytes_member
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind, versioned

FORMAT: Final = 1

QUERY_CONTENT: Final[StateKind[str, bytes]] = state_kind(
    "query_content",
    by="the SHA-256 of the content, in hex",
    key=TEXT_KEY,
    value=versioned(bytes_member("content"), FORMAT, "file of a query"),
    example=("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", b"{}"),
)
