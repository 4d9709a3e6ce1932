"""The header by which a Flight SQL call names the dialect of its SQL. Drivers send it with every call: ADBC by
`adbc.flight.sql.rpc.call_header.anabranch-dialect`, JDBC by a parameter of the URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyarrow import flight

from anabranch.server.flight.callers import header_of
from anabranch.wire.commands import DIALECT_HEADER

DIALECT: Final = "dialect"


class _Dialect(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class DialectMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Takes the dialect out of the headers."""

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> _Dialect | None:
        """Called by pyarrow at the start of each call."""
        del info
        name = header_of(headers, DIALECT_HEADER)
        return None if name is None else _Dialect(name)


def dialect_of(context: Any) -> str | None:
    """The dialect that a call names; None: DuckDB's."""
    found = context.get_middleware(DIALECT)
    return None if found is None else found.name
