"""Calls of the functions that a file declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import Token, TokenType

from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.functions.declared import DeclaredFunction
from anabranch.spark.pipelines.sql.create_function import is_function
from anabranch.spark.pipelines.sql_tokens import replaced

__all__ = ["with_spark_names"]


def with_spark_names(text: str, tokens: Sequence[Token], functions: Mapping[str, DeclaredFunction]) -> str:
    """The text with the calls of `functions` renamed to Spark's names; `tokens` are the tokens of the text. Line breaks are
    kept. Raises InvalidSql for a call of a function that handles batches."""
    changes = []
    for index in _calls(tokens, functions):
        token = tokens[index]
        function = functions[token.text.lower()]
        if function.of_batches:
            raise InvalidSql(
                f"'{function.name}' returns a table: use it as a statement's handler, WITH (handler = {function.name})",
                line=token.line,
            )
        changes.append((token.start, token.end + 1, function.spark_name))
    return replaced(text, changes)


def _calls(tokens: Sequence[Token], functions: Mapping[str, DeclaredFunction]) -> Iterator[int]:
    declaring = False
    for index, token in enumerate(tokens[:-1]):
        before = tokens[index - 1] if index else None
        if before is None or before.token_type is TokenType.SEMICOLON:
            declaring = is_function(tokens[index : index + 2])
        if declaring or token.token_type is TokenType.STRING or token.text.lower() not in functions:
            continue
        dotted = before is not None and before.token_type is TokenType.DOT
        if tokens[index + 1].token_type is TokenType.L_PAREN and not dotted:
            yield index
