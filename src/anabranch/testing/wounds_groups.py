"""Wounds of reader groups; see `testing.wounds`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from anabranch.model.append import Part
from anabranch.readers.revisioned import RevisionedStream
from anabranch.streams import publish
from anabranch.testing.clients import SHARERS
from anabranch.testing.wounds import Wound, _replaced

__all__ = ["GROUP_WOUNDS"]


def leave_the_position_out_of_the_unit() -> AbstractContextManager[None]:
    """A group's output is there, and its position is not."""
    publish_whole = publish._publish

    def alone(catalog: Any, blobs: Any, runtime: Any, publications: Any, request: Any, beside: Any, *rest: Any) -> bool:
        return publish_whole(catalog, blobs, runtime, publications, request, (), *rest)

    return _replaced(publish, "_publish", alone)


def accept_without_the_condition() -> AbstractContextManager[None]:
    """The position that goes with an output replaces whatever others have accepted meanwhile."""
    part = RevisionedStream.part

    def careless(self: RevisionedStream, value: bytes, expected: int) -> Part:
        return replace(part(self, value, expected), expected=None)

    return _replaced(RevisionedStream, "part", careless)


GROUP_WOUNDS: Final = (
    Wound(leave_the_position_out_of_the_unit, ("the group read",), casts=SHARERS),
    Wound(accept_without_the_condition, ("the group read",), casts=SHARERS),
)
