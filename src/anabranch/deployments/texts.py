"""Checks the texts of a version: its statements and the values of its parameters."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch import limits
from anabranch.core.sql_parameters import bind, declarations
from anabranch.core.sql_text import check_sql_text
from anabranch.errors import InvalidArgument, InvalidSql, TooLarge

__all__ = ["check_parameters", "check_statements", "check_values"]


def check_statements(text: str, what: str = "the text") -> None:
    """Check the size and characters of statements; the host parses them. `what` is the text's name in messages. Raises InvalidArgument, TooLarge."""
    if not isinstance(text, str):
        raise InvalidArgument(f"expected the SQL as text, got {type(text).__name__}")
    check_sql_text(text, what=what, bytes_max=limits.DEPLOYMENT_TEXT_BYTES_MAX)
    if not text.strip():
        raise InvalidSql("no statement found; expected CREATE STREAM scope.name AS SELECT …", line=1)


def check_values(parameters: Mapping[str, str] | None) -> dict[str, str]:
    """The values of parameters, in the order of their names; none for None. Raises InvalidArgument, TooLarge."""
    found = dict(parameters or {})
    if len(found) > limits.DEPLOYMENT_PARAMETERS_MAX:
        raise InvalidArgument(f"expected at most {limits.DEPLOYMENT_PARAMETERS_MAX:,} parameters, got {len(found):,}")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(f"expected the values of parameters as text, got {value!r:.100} for {name!r:.100}")
        check_sql_text(f"{name}={value}", what=f"parameter '{name:.100}'", bytes_max=limits.DEPLOYMENT_TEXT_BYTES_MAX)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in found.items())
    if size > limits.DEPLOYMENT_TEXT_BYTES_MAX:
        raise TooLarge("the parameters of a query", size, limits.DEPLOYMENT_TEXT_BYTES_MAX)
    return dict(sorted(found.items()))


def check_parameters(text: str, values: Mapping[str, str]) -> None:
    """Check that the statements declare each of these parameters, with a type that its value has, and that each declared one
    has a value or a default. Raises InvalidSql."""
    bind(declarations(text), values)
