"""The source and the arguments of a copy, by which a repeated copy is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.core.copy import CopyResult
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """`asked` holds the arguments: `start` and `end`, each `head`, `tail` or a cut; `independent`; `where`. For an
    import, `archive` is the digest of its metadata; for an attachment, `attached` is its location too."""

    result: CopyResult
    asked: Mapping[str, Any]


_SOURCE: Final = StreamId(0x2BCD55E1E5C62EE7)
_COPY: Final = StreamId(0x41A7C0DE12345678)

COPIED: Final[StateKind[StreamId, CopyRecord]] = state_kind(
    "copied",
    by="the id of the copy, 16 hex digits",
    key=STREAM_KEY,
    value=CopyRecord,
    identity=lambda record: record.result.copy,
    example=(
        _COPY,
        CopyRecord(
            CopyResult(
                _COPY,
                _SOURCE,
                StreamCut(_SOURCE, ((SegmentId(0, 0), 0),)),
                StreamCut(_SOURCE, ((SegmentId(0, 0), 512),)),
            ),
            {"start": "head", "end": "tail"},
        ),
    ),
)
