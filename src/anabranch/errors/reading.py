"""Readers that can't go on where they are."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors.base import AnabranchError, NotFound


class Truncated(AnabranchError):
    """The position lies before the stream's head. `head` is the first offset that can still be read, by segment text."""

    def __init__(self, stream: str, head: Mapping[str, int]) -> None:
        super().__init__(f"that part of '{stream}' was truncated; its head is now {dict(head)}")
        self.stream = stream
        self.head = dict(head)


class GroupNotFound(NotFound):
    """No reader group has this name (any more). `name` is what it is called since its scope was renamed, if it was."""

    def __init__(self, group: str, name: str | None = None) -> None:
        super().__init__(
            f"there is no reader group '{group}'" if name is None else f"reader group '{group}' is called '{name}' now"
        )
        self.group = group
        self.name = name


class ReaderNotInGroup(AnabranchError):
    """The group goes on without this reader: it was presumed dead, taken offline or opened again elsewhere, or the group
    was reset. What it read since its last accepted position is read by others; opening it again is safe."""

    def __init__(self, group: str, reader: str) -> None:
        super().__init__(f"reader '{reader}' is in group '{group}' no more; others read what it had not accepted")
        self.group = group
        self.reader = reader
