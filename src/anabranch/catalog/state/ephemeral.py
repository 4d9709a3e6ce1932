"""The holders of ephemeral streams. A stream without a row is permanent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch import limits
from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind, time_text
from anabranch.model.ids import Micros, StreamId


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of an ephemeral stream. `process` is for people: host and process id. It holds from `since` until
    `until`, by the catalog's clock, unless it renews."""

    token: str
    process: str
    since: Micros
    until: Micros

    def alive(self, now: Micros) -> bool:
        """True as long as it may still be running, though the two may not see quite the same time."""
        return now < self.until + limits.CLOCKS_DIFFER_US


@dataclass(frozen=True, slots=True)
class Holders:
    """The holders of one stream."""

    holders: tuple[Holder, ...]


def until_lookup(time: Micros) -> str:
    """The lookup of a stream whose first hold to expire does so at this time. They sort by time."""
    return time_text(time)


def _lookup(_stream: StreamId, row: Holders) -> str:
    return until_lookup(min((holder.until for holder in row.holders), default=Micros(0)))


EPHEMERAL: Final[StateKind[StreamId, Holders]] = state_kind(
    "ephemeral",
    about="The holders of ephemeral streams. A stream without a row is permanent.",
    found_by="when the first of its holds expires (µs), 16 hex digits",
    key=STREAM_KEY,
    value=Holders,
    lookup=_lookup,
    example=(
        StreamId(0x2BCD55E1E5C62EE7),
        Holders(
            (
                Holder(
                    "5d41402abc4b2a76",
                    "host-1:4711",
                    Micros(1_767_225_600_000_000),
                    Micros(1_767_225_630_000_000),
                ),
            )
        ),
    ),
)
