"""Scopes, streams and events that are not there, or are there already."""

from __future__ import annotations

from anabranch.errors.base import AlreadyExists, AnabranchError, NotFound


class StoreNotFound(NotFound):
    """There is no store where one was said to be."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"there is no store in {place}; its first scope makes it: anabranch --store {place} scope create NAME"
        )
        self.place = place


class ScopeNotFound(NotFound):
    """No scope has this name."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"there is no scope '{scope}'; create it with: anabranch scope create {scope}")
        self.scope = scope


class ScopeRenamed(ScopeNotFound):
    """That was the name of a scope which is called `name` now."""

    def __init__(self, scope: str, name: str) -> None:
        NotFound.__init__(self, f"scope '{scope}' is called '{name}' now")
        self.scope = scope
        self.name = name


class StreamNotFound(NotFound):
    """No stream has this name or id (any more)."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"there is no stream '{stream}'")
        self.stream = stream


class StreamRenamed(StreamNotFound):
    """That was the name of a stream which is called `name` now."""

    def __init__(self, stream: str, name: str) -> None:
        NotFound.__init__(self, f"stream '{stream}' is called '{name}' now")
        self.stream = stream
        self.name = name


class EventNotFound(NotFound):
    """The pointer is well formed, but its segment or offset does not exist in the stream."""


class ScopeExists(AlreadyExists):
    """A scope of this name exists."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"scope '{scope}' exists already")
        self.scope = scope


class StreamExists(AlreadyExists):
    """A stream of this name exists, or one of which this is an alias: `alias_of`."""

    def __init__(self, stream: str, alias_of: str | None = None) -> None:
        if alias_of is None:
            super().__init__(f"stream '{stream}' exists already")
        else:
            super().__init__(f"'{stream}' is an alias of stream '{alias_of}'; free it with: anabranch unalias {stream}")
        self.stream = stream
        self.alias_of = alias_of


class ScopeNotEmpty(AnabranchError):
    """The scope still holds streams."""

    def __init__(self, scope: str, streams: int) -> None:
        super().__init__(
            f"scope '{scope}' still holds {streams} stream(s); delete them too with: anabranch scope delete {scope} --recursive"
        )
        self.scope = scope
        self.streams = streams
