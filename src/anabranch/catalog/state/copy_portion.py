"""The portions of a job that copies by a filter. Deleted when the job has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import StateKind, state_kind
from anabranch.catalog.state.replacing_portion import PORTION_KEY, PortionKey
from anabranch.core.filtered_slice import KeptEvents
from anabranch.model.ids import LogId, SegmentId


@dataclass(frozen=True, slots=True)
class CopyPortion:
    """The offsets before `stop`, about `bytes` logical bytes, and which of their events the copy keeps; None as long as
    the filter has not been evaluated for them."""

    stop: int
    bytes: int
    kept: tuple[KeptEvents, ...] | None


COPY_PORTION: Final[StateKind[PortionKey, CopyPortion]] = state_kind(
    "copy_portion",
    by="the job's id, the segment and the first offset, 16 hex digits each, with `/` between",
    key=PORTION_KEY,
    value=CopyPortion,
    example=(
        PortionKey("0a1b2c3d4e5f", SegmentId(0, 0), 0),
        CopyPortion(
            512,
            16_384,
            (
                KeptEvents(0, 100, 100, None, ((0, 100),)),
                KeptEvents(200, 206, 4, LogId(9), ((200, 201), (203, 206))),
            ),
        ),
    ),
)
