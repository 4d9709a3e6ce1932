"""Errors of readers that can't continue from their position."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors.base import AnabranchError, NotFound
from anabranch.errors.names import StreamNotFound


class Truncated(AnabranchError):
    """The position is before the stream's head. `head` gives the first offset that can still be read, by segment
    text."""

    def __init__(self, stream: str, head: Mapping[str, int]) -> None:
        super().__init__(f"the position in '{stream}' was truncated; the head is now {dict(head)}")
        self.stream = stream
        self.head = dict(head)


class GroupNotFound(NotFound):
    """No reader group has this name (or no longer). `name` is its new name if its scope was renamed, else None."""

    def __init__(self, group: str, name: str | None = None) -> None:
        super().__init__(
            f"reader group '{group}' not found" if name is None else f"reader group '{group}' was renamed to '{name}'"
        )
        self.group = group
        self.name = name


class GroupStreamDeleted(StreamNotFound):
    """A stream that a reader group reads was deleted. `remade` is True if there is another stream of its name: a reset
    of the group reads that one from its head. A reset with `streams=` continues without the deleted one."""

    def __init__(self, group: str, stream: str, *, remade: bool = False) -> None:
        what = (
            "was deleted and made again: group.reset() continues with the new one, from its head"
            if remade
            else "was deleted: group.reset(streams=…) continues with others"
        )
        NotFound.__init__(self, f"stream '{stream}', which reader group '{group}' reads, {what}")
        self.group = group
        self.stream = stream
        self.remade = remade


class ReaderNotInGroup(AnabranchError):
    """The group continues without this reader: it was presumed dead, taken offline or opened again elsewhere, or the
    group was reset. Other readers read what it read after its last accepted position. Opening it again is safe."""

    def __init__(self, group: str, reader: str) -> None:
        super().__init__(
            f"reader '{reader}' is no longer in group '{group}'; other readers read what it had not accepted"
        )
        self.group = group
        self.reader = reader
