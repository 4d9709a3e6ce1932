"""Parameters that stand for the name of a stream or column: `:name` becomes one quoted identifier wherever it is.

Spark gets the other values as such, never as a part of the SQL. Declarations and values are in
`anabranch.core.sql_parameters`. Pure: no Spark, no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from sqlglot import Token, TokenType

from anabranch.core.sql_parameters import NAMES, Parameter
from anabranch.spark.pipelines.sql_tokens import replaced
from anabranch.spark.quoting import quoted

__all__ = ["with_names"]


def with_names(text: str, tokens: Sequence[Token], declared: Sequence[Parameter], values: Mapping[str, Any]) -> str:
    """The text, of which these are the tokens, with `:name` of each parameter that stands for a name replaced by that name as
    a quoted identifier. Lines stay where they are."""
    return replaced(text, _names(tokens, {each.name: each for each in declared}, values))


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
