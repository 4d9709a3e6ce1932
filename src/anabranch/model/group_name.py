"""Names of reader groups, and of the internal streams that store their state."""

from __future__ import annotations

from typing import Final

from anabranch.model.names import StreamName

GROUP_PREFIX: Final = "_group-"


def group_stream(group: str | StreamName) -> StreamName:
    """The stream that stores the state of the group `scope/name`. Raises InvalidName."""
    full = StreamName.parse(group)
    return StreamName(full.scope, f"{GROUP_PREFIX}{full.name}")


def is_group_stream(stream: StreamName) -> bool:
    """True if the stream stores the state of a group."""
    return stream.name.startswith(GROUP_PREFIX)


def group_name(stream: StreamName) -> str:
    """The group whose state the stream stores, as `scope/name`."""
    return f"{stream.scope}/{stream.name[len(GROUP_PREFIX) :]}"
