"""What is wrong with a call, whatever the store holds."""

from __future__ import annotations

from anabranch.errors.base import AnabranchError


class InvalidArgument(AnabranchError, ValueError):
    """The call can never succeed as written."""


class InvalidName(InvalidArgument):
    """A scope or stream name breaks the rules of `anabranch.model.names`."""


class InvalidKey(InvalidArgument):
    """A routing key is of a type that has no canonical text."""


class InvalidCut(InvalidArgument):
    """A stream cut's text is malformed, or the cut does not cover its stream's key space."""


class InvalidPointer(InvalidArgument):
    """An event pointer's text is malformed."""


class InvalidSql(InvalidArgument):
    """A pipeline or query text can't be understood; `line` counts from 1 where it is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class SchemaMismatch(InvalidArgument):
    """Data and the stream's schema disagree; `column` names the first that does, `row` its row from 0."""

    def __init__(self, message: str, *, column: str | None = None, row: int | None = None) -> None:
        super().__init__(message)
        self.column = column
        self.row = row


class TooLarge(InvalidArgument):
    """An event, batch, tag or name exceeds `limit` (in the unit the message says)."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(f"{what} is {size:,} bytes, over the limit of {limit:,}")
        self.size = size
        self.limit = limit


class MissingExtra(AnabranchError, ImportError):
    """An optional dependency is not installed; the message says which extra brings it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs an optional part of anabranch; install it with: pip install 'anabranch[{extra}]'"
        )
        self.extra = extra


class RequestMismatch(AnabranchError):
    """A request id that was used for one operation came with another."""
