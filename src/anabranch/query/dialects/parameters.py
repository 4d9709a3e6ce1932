"""Parameters written `?`. A translation may repeat an expression or change the order of two, so each gets its number: `$1`,
`$2` …"""

from __future__ import annotations

import re
from typing import Final

from anabranch.errors.optional import optional
from anabranch.query.dialects.text import StatementText

with optional("a translation of SQL", "query"):
    from sqlglot import TokenType, exp

_FIRST: Final = 0xE000  # of the characters that Unicode leaves to private use: they stand for parameters in the text
_MOST: Final = 0xF900 - _FIRST
_MARK: Final = re.compile("[\ue000-\uf8ff]")


def marked(text: StatementText) -> str:
    """The statement's text with a name of one character for each `?`. Raises InvalidSql if there are too many, or if the
    text has such characters itself."""
    left = list(text.left)
    tokens = [each for each in text.tokens if each.token_type is TokenType.PLACEHOLDER and each.text == "?"]
    if tokens and (found := _MARK.search(text.left)) is not None:
        raise text.error_at(
            "a character of a private use is not supported beside parameters", text.start + found.start()
        )
    if len(tokens) > _MOST:
        raise text.error_at(f"a statement has at most {_MOST:,} parameters", tokens[_MOST].start)
    for number, token in enumerate(tokens):
        if left[token.start - text.start] == "?":  # else it was taken out
            left[token.start - text.start] = chr(_FIRST + number)
    return "".join(left)


def unmarked(text: str) -> str:
    """The text with `?` again in place of each such name."""
    return _MARK.sub("?", text)


def number_parameters(text: StatementText, tree: exp.Expr) -> None:
    """Replace the names that stand for parameters by `$1`, `$2` …. Raises InvalidSql for a `?` in place of a name."""
    tokens = [each for each in text.tokens if each.token_type is TokenType.PLACEHOLDER and each.text == "?"]
    if not tokens:
        return
    for column in list(tree.find_all(exp.Column)):
        if not column.table and _MARK.fullmatch(column.name):
            number = ord(column.name) - _FIRST
            parameter = exp.Parameter(this=exp.Literal.number(number + 1))
            parameter.meta["start"] = tokens[number].start - text.start
            column.replace(parameter)
    for name in tree.find_all(exp.Identifier):
        if (found := _MARK.search(name.name)) is not None:
            raise text.error_at(
                "a parameter stands for a value only; write the name itself here", tokens[ord(found[0]) - _FIRST].start
            )
