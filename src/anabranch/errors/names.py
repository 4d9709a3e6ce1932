"""Errors for scopes, streams and events that don't exist, or already exist."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors.base import AlreadyExists, AnabranchError, NotFound


class StoreNotFound(NotFound):
    """No store exists at the given place."""

    def __init__(self, location: str) -> None:
        super().__init__(
            f"no store found in {location}; create one with: anabranch --store {location} scope create NAME, "
            "or in Python: connect(…, create=True)"
        )
        self.location = location


class ScopeNotFound(NotFound):
    """No scope has this name; `alike` are names that resemble it. `problem` is the message without the advice."""

    def __init__(self, scope: str, alike: Sequence[str] = ()) -> None:
        problem = f"scope '{scope}' not found{_did_you_mean(alike)}"
        super().__init__(with_advice(problem, f"create it with: anabranch scope create {scope}"))
        self.scope = scope
        self.problem = problem


class ScopeRenamed(ScopeNotFound):
    """The scope of this name was renamed to `name`."""

    def __init__(self, scope: str, name: str) -> None:
        NotFound.__init__(self, f"scope '{scope}' was renamed to '{name}'")
        self.problem = str(self)
        self.scope = scope
        self.name = name


class StreamNotFound(NotFound):
    """No stream has this name or id (or no longer); `alike` are names that resemble it."""

    def __init__(self, stream: str, alike: Sequence[str] = ()) -> None:
        super().__init__(f"stream '{stream}' not found{_did_you_mean(alike)}")
        self.stream = stream


class StreamRenamed(StreamNotFound):
    """The stream of this name was renamed to `name`."""

    def __init__(self, stream: str, name: str) -> None:
        NotFound.__init__(self, f"stream '{stream}' was renamed to '{name}'")
        self.stream = stream
        self.name = name


class EventNotFound(NotFound):
    """The pointer is well formed, but its segment or offset does not exist in the stream."""


class ScopeExists(AlreadyExists):
    """A scope of this name already exists."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"scope '{scope}' already exists")
        self.scope = scope


class StreamExists(AlreadyExists):
    """A stream of this name already exists, or the name is an alias of the stream `alias_of`."""

    def __init__(self, stream: str, alias_of: str | None = None) -> None:
        if alias_of is None:
            super().__init__(f"stream '{stream}' already exists")
        else:
            super().__init__(
                f"'{stream}' is an alias of stream '{alias_of}'; remove the alias with: anabranch unalias {stream}"
            )
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


def with_advice(problem: str, advice: str) -> str:
    """A message of two parts; the first may be a question."""
    return f"{problem}{'' if problem.endswith('?') else ';'} {advice}"


def _did_you_mean(alike: Sequence[str]) -> str:
    names = " or ".join(f"'{name}'" for name in alike)
    return f"; did you mean {names}?" if names else ""
