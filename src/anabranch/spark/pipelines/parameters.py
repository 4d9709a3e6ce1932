"""The parameters of a pipeline's file: declared in it with a type, perhaps with a default, and given values as text.

    DECLARE PARAMETER size INTERVAL DEFAULT '10 seconds';
    DECLARE PARAMETER limit DOUBLE;

A statement refers to a value by `:size`. Spark gets values as such, never as a part of the SQL. A parameter of type STREAM or
COLUMN stands for a name, which becomes one quoted identifier wherever it is. Pure: no Spark, no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise
from typing import Any, Final

from sqlglot import Token, TokenType

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.model.names import StreamName
from anabranch.model.times import to_datetime, to_micros
from anabranch.spark.pipelines.intervals import parse_interval_us
from anabranch.spark.pipelines.sql_tokens import replaced
from anabranch.spark.quoting import quoted

__all__ = ["TYPES", "Parameter", "bind", "with_names"]

NAMES: Final = ("STREAM", "COLUMN")
TYPES: Final = ("STRING", "BOOLEAN", "INT", "BIGINT", "DOUBLE", "DATE", "TIMESTAMP", "INTERVAL", *NAMES)
_BITS: Final = {"INT": 31, "BIGINT": 63}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as declared on `line`. `default` as text; None: a value has to be given."""

    name: str
    kind: str
    default: str | None
    line: int


def bind(declared: Mapping[str, Parameter], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of each parameter. Raises InvalidSql for one without a value, or a value that is not of its type, and for
    values of parameters that are not declared."""
    for name in given:
        if name not in declared:
            known = (
                f"it declares {', '.join(declared)}" if declared else "it declares none: DECLARE PARAMETER name TYPE"
            )
            raise InvalidSql(f"the file declares no parameter '{name}'; {known}")
    values = {}
    for name, parameter in declared.items():
        text = given.get(name, parameter.default)
        if text is None:
            raise InvalidSql(f"parameter '{name}' has no default, so it needs a value", line=parameter.line)
        try:
            values[name] = _value(parameter.kind, text)
        except (ValueError, OverflowError) as exc:  # InvalidArgument is a ValueError
            raise InvalidSql(
                f"parameter '{name}' is of type {parameter.kind}, not '{text}'", line=parameter.line
            ) from exc
    return values


def with_names(text: str, tokens: Sequence[Token], declared: Mapping[str, Parameter], values: Mapping[str, Any]) -> str:
    """The text, of which these are the tokens, with `:name` of each parameter that stands for a name replaced by that name as
    a quoted identifier. Lines stay where they are."""
    return replaced(text, _names(tokens, declared, values))


def _names(
    tokens: Sequence[Token], declared: Mapping[str, Parameter], values: Mapping[str, Any]
) -> Iterator[tuple[int, int, str]]:
    for colon, token in pairwise(tokens):
        parameter = declared.get(token.text)
        if colon.token_type is not TokenType.COLON or colon.end + 1 != token.start or parameter is None:
            continue
        if parameter.kind in NAMES and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER):
            words = values[parameter.name].split("/") if parameter.kind == "STREAM" else [values[parameter.name]]
            yield colon.start, token.end + 1, ".".join(map(quoted, words))


def _value(kind: str, text: str) -> str | bool | int | float | date | datetime:
    match kind:
        case "STREAM":
            return str(StreamName.parse(text))
        case "COLUMN":
            if not text or len(text) > limits.NAME_CHARS_MAX or not text.isprintable():
                raise ValueError(text)
            return text
        case "BOOLEAN":
            return ("false", "true").index(text.lower()) == 1
        case "INT" | "BIGINT":
            number = int(text)
            if not -(1 << _BITS[kind]) <= number < 1 << _BITS[kind]:
                raise OverflowError(text)
            return number
        case "DOUBLE":
            return float(text)
        case "DATE":
            return date.fromisoformat(text)
        case "TIMESTAMP":
            return to_datetime(to_micros(text))
        case "INTERVAL":  # as text, which windows take; elsewhere CAST(:name AS INTERVAL)
            parse_interval_us(text)
            return text
    return text
