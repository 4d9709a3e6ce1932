"""`bloom_sketch_agg(x[, parts])` in a pipeline's SQL, written out in functions of Spark. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlglot import Token, TokenType

from anabranch.errors import InvalidSql
from anabranch.sketches.bloom import PARTS, PARTS_MAX, expression
from anabranch.spark.pipelines.sql_tokens import closing, is_call, list_items, on_one_line, replaced

__all__ = ["with_bloom_filters"]

_NAME: Final = "bloom_sketch_agg"


def with_bloom_filters(text: str, tokens: Sequence[Token]) -> str:
    """The text, of which these are the tokens, with each call replaced. Lines stay where they are. Raises InvalidSql."""
    return replaced(text, _changes(text, tokens))


def _changes(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
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
