"""The statement DECLARE PARAMETER name TYPE [DEFAULT value]."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token

from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.parameters import TYPES, Parameter
from anabranch.spark.pipelines.sql_tokens import word_of

__all__ = ["declared_parameter", "is_declaration"]


def is_declaration(tokens: Sequence[Token]) -> bool:
    """True for the tokens of a DECLARE PARAMETER."""
    return list(map(word_of, tokens[:2])) == ["DECLARE", "PARAMETER"]


def declared_parameter(cursor: Cursor) -> Parameter:
    """The parameter that the statement declares. Raises InvalidSql."""
    name, kind = cursor.name_at(2), word_of(cursor.tokens[3]) if len(cursor.tokens) > 3 else ""
    cursor.at = 2
    if name is None or kind not in TYPES:
        cursor.fail(f"expected DECLARE PARAMETER name TYPE [DEFAULT value], with a type of {', '.join(TYPES)}")
    cursor.at, default = 4, None
    if cursor.take("DEFAULT"):
        sign = "-" if cursor.take("-") else ""
        value = cursor.peek()
        if value is None:
            cursor.fail("expected a value after DEFAULT")
        default = sign + value.text
        cursor.at += 1
    if cursor.peek() is not None:
        cursor.fail("expected ; after the declaration of a parameter")
    return Parameter(name, kind, default, cursor.tokens[0].line)
