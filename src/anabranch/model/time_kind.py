"""Which of an event's two times a time is compared with."""

from __future__ import annotations

from typing import Literal

from anabranch.errors import InvalidArgument

TimeKind = Literal["append", "event"]


def time_kind(by: object, *, form: str = "by='{}'") -> TimeKind:
    """`by`, if it is one of the two. Raises InvalidArgument, which says how it is given: in `form`."""
    if by == "append":
        return "append"
    if by == "event":
        return "event"
    raise InvalidArgument(f"expected {form.format('append')} or {form.format('event')}, got '{by}'")
