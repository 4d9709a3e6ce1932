"""Replacements in the text of a file before its statements are read: calls of the functions that it declares and of
`bloom_sketch_agg(x[, parts])`, which Spark has under other names, and parameters that stand for the name of a stream or column.

Spark gets the values of other parameters as such, never as a part of the SQL. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from sqlglot import Token, TokenType

from anabranch.core.sql_parameters import NAMES, Parameter
from anabranch.errors import InvalidSql
from anabranch.sketches.bloom import PARTS, PARTS_MAX, expression
from anabranch.spark.pipelines.declared_functions.declared import DeclaredFunction
from anabranch.spark.pipelines.sql.create_function import is_function
from anabranch.spark.pipelines.sql_tokens import closing, is_call, list_items, on_one_line, replaced
from anabranch.spark.quoting import quoted

__all__ = ["with_bloom_filters", "with_names", "with_spark_names"]

_NAME: Final = "bloom_sketch_agg"


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


def with_bloom_filters(text: str, tokens: Sequence[Token]) -> str:
    """The text, of which these are the tokens, with each call replaced. Lines stay where they are. Raises InvalidSql."""
    return replaced(text, _bloom_calls(text, tokens))


def _bloom_calls(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    index = 0
    while index < len(tokens):
        if is_call(tokens, index, (_NAME,)):
            last = closing(tokens, index + 1)
            begin, end = tokens[index].start, tokens[last].end + 1
            yield begin, end, _written_out(text, tokens, index, last) + "\n" * text.count("\n", begin, end)
            index = last
        index += 1


def _written_out(text: str, tokens: Sequence[Token], first: int, last: int) -> str:
    value, *others = (tokens[begin:end] for begin, end in list_items(tokens, first + 2, last))
    parts = PARTS
    if others:
        given = others[0] if len(others) == 1 else []
        parts = int(given[0].text) if len(given) == 1 and given[0].text.isdecimal() else 0
    if not value or not 1 <= parts <= PARTS_MAX or value[0].token_type is TokenType.DISTINCT:
        raise InvalidSql(f"write {_NAME}(value[, parts]), with 1 to {PARTS_MAX} parts", line=tokens[first].line)
    return expression(on_one_line(text, value), parts)


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
