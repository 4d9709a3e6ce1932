"""`bloom_sketch_agg(x[, parts])` in a pipeline's SQL, written out in functions of Spark. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlglot import Token, TokenType

from anabranch.errors import InvalidSql
from anabranch.sketches.bloom import PARTS, PARTS_MAX, expression

__all__ = ["with_bloom_filters"]

_NAME: Final = "bloom_sketch_agg"


def with_bloom_filters(text: str, tokens: Sequence[Token]) -> str:
    """The text, of which these are the tokens, with each call replaced. Lines stay where they are. Raises InvalidSql."""
    parts, position = [], 0
    for first, last in _calls(tokens):
        begin, end = tokens[first].start, tokens[last].end + 1
        lines = "\n" * text.count("\n", begin, end)
        parts += [text[position:begin], _written_out(text, tokens, first, last), lines]
        position = end
    return "".join([*parts, text[position:]])


def _calls(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """The first and the last token of each call."""
    index = 0
    while index < len(tokens) - 1:
        token = tokens[index]
        named = token.token_type is TokenType.VAR and token.text.lower() == _NAME
        if named and tokens[index + 1].token_type is TokenType.L_PAREN:
            depth, last = 0, index + 1
            while last < len(tokens):
                kind = tokens[last].token_type
                depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
                if not depth:
                    break
                last += 1
            else:
                raise InvalidSql("this ( is never closed", line=token.line)
            yield index, last
            index = last
        index += 1


def _written_out(text: str, tokens: Sequence[Token], first: int, last: int) -> str:
    depth, commas = 0, []
    for index in range(first + 2, last):
        kind = tokens[index].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if kind is TokenType.COMMA and not depth:
            commas.append(index)
    end, parts = commas[0] if commas else last, PARTS
    value = _on_one_line(text, tokens[first + 2 : end])
    if commas:
        given = tokens[end + 1 : last]
        parts = int(given[0].text) if len(given) == 1 and given[0].text.isdecimal() else 0
    if not value or not 1 <= parts <= PARTS_MAX or tokens[first + 2].text.upper() == "DISTINCT":
        raise InvalidSql(f"write {_NAME}(value[, parts]), with 1 to {PARTS_MAX} parts", line=tokens[first].line)
    return expression(value, parts)


def _on_one_line(text: str, tokens: Sequence[Token]) -> str:
    """The text of the tokens without comments and line breaks."""
    parts: list[str] = []
    for before, each in zip([None, *tokens], tokens, strict=False):
        apart = before is not None and before.end + 1 < each.start
        parts += [" " * apart, text[each.start : each.end + 1]]
    return "".join(parts)
