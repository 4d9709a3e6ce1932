"""Errors in a call itself, independent of what the store holds."""

from __future__ import annotations

from anabranch.errors.base import AnabranchError


class InvalidArgument(AnabranchError, ValueError):
    """The call can never succeed as written."""


class InvalidName(InvalidArgument):
    """A scope or stream name breaks the rules of `anabranch.model.names`."""


class InvalidKey(InvalidArgument):
    """A routing key has a type without a canonical text form."""


class InvalidCut(InvalidArgument):
    """A stream cut's text is malformed, or the cut does not cover its stream's key space."""


class InvalidPointer(InvalidArgument):
    """An event pointer's text is malformed."""


class InvalidSql(InvalidArgument):
    """The SQL of a pipeline or query can't be parsed; `line` counts from 1, if known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class SchemaMismatch(InvalidArgument):
    """Data doesn't match the stream's schema; `column` names the first mismatching column, `row` its row from 0."""

    def __init__(self, message: str, *, column: str | None = None, row: int | None = None) -> None:
        super().__init__(message)
        self.column = column
        self.row = row


class TooLarge(InvalidArgument):
    """An event, batch, tag or name exceeds `limit` (in the unit that the message states)."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(f"{what} is {size:,} bytes, over the limit of {limit:,}")
        self.size = size
        self.limit = limit


class MissingExtra(AnabranchError, ImportError):
    """An optional dependency is not installed, or can't be loaded; the message says how to install it. `extra` is the
    part of Anabranch that provides it; None if it is a package of its own, `package`. `reason` says why what is
    installed can't be loaded."""

    def __init__(
        self, feature: str, extra: str | None = None, *, package: str | None = None, reason: str | None = None
    ) -> None:
        if extra is not None:
            needs, install = "an optional part of anabranch", f"'anabranch[{extra}]'"
        else:
            needs, install = f"{package}", f"{package}"
        if reason is None:
            message = f"{feature} needs {needs}; install it with: pip install {install}"
        else:
            message = f"{feature} needs {needs}, which can't be loaded ({reason}); install it again with: pip install {install}"
        super().__init__(message)
        self.extra = extra
        self.package = package


class RequestMismatch(AnabranchError):
    """A request id that was used for one operation was used again for another."""
