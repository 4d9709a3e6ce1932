"""The tokens of SQL: strings, comments and quoted names found, but nothing parsed. Pure.

They are those of sqlglot's tokenizer. Its parser is not used, because it does not support `GROUP BY window(…)`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from anabranch import limits
from anabranch.errors import InvalidSql

__all__ = [
    "check_complexity",
    "closing",
    "is_call",
    "is_declaration",
    "list_items",
    "nesting",
    "on_one_line",
    "outside_parentheses",
    "replaced",
    "split_statements",
    "tokenize",
    "value_at",
    "word_of",
]


_COMMENT: Final = "/*"
_COMMENT_END: Final = "*/"
_BEFORE_COMMENT: Final = re.compile(r"--[^\n]*|/\*")
_IN_COMMENT: Final = re.compile(r"/\*|\*/")
_BRACKETS: Final[Mapping[TokenType, int]] = {
    TokenType.L_PAREN: 1,
    TokenType.L_BRACKET: 1,
    TokenType.L_BRACE: 1,
    TokenType.R_PAREN: -1,
    TokenType.R_BRACKET: -1,
    TokenType.R_BRACE: -1,
}
_CASES: Final[Mapping[TokenType, int]] = {TokenType.CASE: 1, TokenType.END: -1}
_NESTED_TYPES: Final = (TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT)
_SIGNS: Final = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE)
_ENDS: Final = ("'", '"', "`", _COMMENT_END)


def tokenize(text: str) -> list[Token]:
    """The tokens of a text. Raises InvalidSql."""
    try:
        return list(Spark().tokenize(text))
    except TokenError as exc:
        raise InvalidSql("a quote or comment is not closed", line=_unclosed_line(text)) from exc


def _unclosed_line(text: str) -> int | None:
    """The line where the unclosed quote or comment begins: the last token, once it is closed, or a comment behind it."""
    for end in _ENDS:
        try:
            tokens = Spark().tokenize(f"{text}\n{end}")
        except TokenError:
            continue
        if tokens and tokens[-1].end >= len(text):
            start = tokens[-1].start
        else:
            start = _unclosed_comment(text, tokens[-1].end + 1 if tokens else 0)
        return text.count("\n", 0, start) + 1
    return None


def _unclosed_comment(text: str, start: int) -> int:
    """Where the comment begins that is not closed. From `start` on, there are only comments, which may hold others."""
    begun, depth = start, 0
    while (found := (_IN_COMMENT if depth else _BEFORE_COMMENT).search(text, start)) is not None:
        start = found.end()
        if found[0] == _COMMENT_END:
            depth -= 1
        elif found[0] == _COMMENT:
            begun, depth = begun if depth else found.start(), depth + 1
    return begun


def split_statements(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens of each statement that is not empty."""
    runs = groupby(tokens, lambda token: token.token_type is TokenType.SEMICOLON)
    return [list(each) for separates, each in runs if not separates]


def word_of(token: Token | None) -> str:
    """The word in upper case; nothing for a quoted name, a text or no token."""
    if token is None or token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return ""
    return str(token.text).upper()


def nesting(token: Token) -> int:
    """By how many parentheses more what follows is enclosed."""
    return (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)


def check_complexity(tokens: Sequence[Token]) -> None:
    """Raises InvalidSql, with the line, for a statement of more than `limits.PIPELINE_TOKENS_MAX` tokens, and for more than
    `limits.PIPELINE_NESTING_MAX` brackets, types, CASE and signs in each other. Spark recurses into them: its stack
    overflows at some hundred, and before that it takes minutes."""
    brackets = cases = types = signs = count = 0
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        count += 1
        if kind is TokenType.SEMICOLON:
            brackets = cases = types = count = 0
        if count > limits.PIPELINE_TOKENS_MAX:
            raise InvalidSql(
                f"the statement has more than {limits.PIPELINE_TOKENS_MAX:,} words and signs: put the values that it lists into a "
                "stream, and join it",
                line=token.line,
            )
        brackets = max(brackets + _BRACKETS.get(kind, 0), 0)
        if before is not TokenType.DOT:
            cases = max(cases + _CASES.get(kind, 0), 0)
        if kind is TokenType.LT and before in _NESTED_TYPES:
            types += 1
        elif kind is TokenType.GT:
            types = max(types - 1, 0)
        signs = signs + 1 if kind in _SIGNS else 0
        before = kind
        if brackets + cases + types + signs > limits.PIPELINE_NESTING_MAX:
            raise InvalidSql(
                f"brackets, CASE or signs are nested more than {limits.PIPELINE_NESTING_MAX} deep: use a statement "
                "for each part",
                line=token.line,
            )


def closing(tokens: Sequence[Token], opened: int) -> int:
    """The index of the parenthesis that closes the one at `opened`. Raises InvalidSql."""
    depth = 0
    for index in range(opened, len(tokens)):
        depth += nesting(tokens[index])
        if not depth:
            return index
    raise InvalidSql("this ( is never closed", line=tokens[opened].line)


def outside_parentheses(tokens: Sequence[Token], first: int, end: int | None = None) -> Iterator[int]:
    """The indices of the tokens from `first` on that are not in parentheses which open there, up to `end` or to a parenthesis
    that closes an earlier one."""
    depth = 0
    for index in range(first, len(tokens) if end is None else end):
        depth += nesting(tokens[index])
        if depth < 0:
            return
        if not depth:
            yield index


def list_items(tokens: Sequence[Token], first: int, end: int) -> list[tuple[int, int]]:
    """The first token of each item of a list, and the one after its last."""
    commas = [i for i in outside_parentheses(tokens, first, end) if tokens[i].token_type is TokenType.COMMA]
    return list(zip([first, *(comma + 1 for comma in commas)], [*commas, end], strict=True))


def is_declaration(tokens: Sequence[Token]) -> bool:
    """True for the tokens of a DECLARE PARAMETER (`anabranch.core.sql_parameters`)."""
    return list(map(word_of, tokens[:2])) == ["DECLARE", "PARAMETER"]


def is_call(tokens: Sequence[Token], index: int, names: Collection[str]) -> bool:
    """True for a call of one of these functions, whose names are given in lower case."""
    after_dot = index > 0 and tokens[index - 1].token_type is TokenType.DOT
    opens = index + 1 < len(tokens) and tokens[index + 1].token_type is TokenType.L_PAREN
    return opens and not after_dot and word_of(tokens[index]).lower() in names


def value_at(tokens: Sequence[Token], index: int, values: Mapping[str, Any]) -> tuple[object, int]:
    """The number, the text or the value of a parameter at an index, and the index after it; None for anything else."""
    found = tokens[index : index + 2]
    if found and found[0].token_type is TokenType.STRING:
        return found[0].text, index + 1
    if found and found[0].token_type is TokenType.NUMBER and found[0].text.isdecimal():
        return int(found[0].text), index + 1
    if len(found) == 2 and found[0].token_type is TokenType.COLON and found[1].text in values:
        return values[found[1].text], index + 2
    return None, index + 1


def on_one_line(text: str, tokens: Sequence[Token]) -> str:
    """The text of these tokens without comments and line breaks."""
    line, stop = "", tokens[0].start if tokens else 0
    for each in tokens:
        line += " " * (each.start > stop) + text[each.start : each.end + 1]
        stop = each.end + 1
    return line


def replaced(text: str, changes: Iterable[tuple[int, int, str]], start: int = 0, stop: int | None = None) -> str:
    """The text from `start` to `stop` with parts of it replaced. Each part is a half-open range of positions."""
    parts = []
    for begin, end, new in sorted(changes):
        parts += [text[start:begin], new]
        start = end
    return "".join([*parts, text[start:stop]])
