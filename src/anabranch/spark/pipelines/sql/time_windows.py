"""The windows of time in a query, and its other intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import Token, TokenType

from anabranch.core.intervals import parse_interval_us
from anabranch.errors import InvalidSql
from anabranch.model.columns import APPENDED
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.sql_tokens import is_call, word_of
from anabranch.spark.pipelines.windows.columns import SESSION_WINDOW, WINDOW
from anabranch.spark.pipelines.windows.spans import StatementWindow

__all__ = ["intervals_us", "time_windows"]

_FUNCTIONS: Final = (WINDOW, SESSION_WINDOW)
_LITERAL_TOKENS_MAX: Final = 8  # of an interval: `1 day 2 hours 3 minutes 4 seconds`


def time_windows(cursor: Cursor, begin: int) -> tuple[StatementWindow, ...]:
    """The windows of the query whose tokens begin at `begin`, each once. Raises InvalidSql."""
    calls = [index for index in range(begin, len(cursor.tokens)) if is_call(cursor.tokens, index, _FUNCTIONS)]
    return tuple(dict.fromkeys(_window(cursor, index) for index in calls))


def _window(cursor: Cursor, index: int) -> StatementWindow:
    line = cursor.tokens[index].line
    is_session = word_of(cursor.tokens[index]).lower() == SESSION_WINDOW
    column, at = cursor.name_at(index + 2), index + 3
    while cursor.is_dot(at):  # alias.column, record.field
        column, at = cursor.name_at(at + 1), at + 2
    spans: list[int] = []
    while at + 1 < len(cursor.tokens) and cursor.tokens[at].token_type is TokenType.COMMA:
        if (parameter := cursor.parameter_at(at + 1)) is not None:
            spans.append(parse_interval_us(str(cursor.values[parameter]), line))
            at += 3
            continue
        spans.append(_window_us(cursor.tokens[at + 1], line))
        at += 2
    closed = at < len(cursor.tokens) and cursor.tokens[at].token_type is TokenType.R_PAREN
    if column is None or not closed or not 1 <= len(spans) <= (1 if is_session else 3):
        wanted = "session_window(column, 'gap')" if is_session else "window(column, 'size'[, 'slide'[, 'start']])"
        raise InvalidSql(f"write {wanted}, with a plain column and constant intervals", line=line)
    size, slide = spans[0], 0 if is_session else spans[1] if len(spans) > 1 else spans[0]
    start = spans[2] if len(spans) > 2 else 0
    if size <= 0 or slide < 0 or (slide == 0 and not is_session) or slide > size or abs(start) >= max(slide, 1):
        raise InvalidSql(
            "expected a window whose size is above 0, whose slide is above 0 and at most the size, and whose start is less "
            "than a slide",
            line=line,
        )
    return StatementWindow(APPENDED if column.lower() == APPENDED else column, size, slide, start)


def _window_us(token: Token, line: int) -> int:
    if token.token_type is TokenType.NUMBER and token.text.isdecimal():
        return int(token.text)  # Spark interprets a bare number as µs
    if token.token_type is not TokenType.STRING:
        raise InvalidSql(f"a window's intervals are constants such as '10 seconds', not {token.text}", line=line)
    return parse_interval_us(token.text, line)


def intervals_us(cursor: Cursor, begin: int) -> int:
    """The sum of the lengths of the query's interval literals, whatever their signs. Those without a fixed length count as 0; Spark judges them."""
    total = 0
    for index in range(begin, len(cursor.tokens) - 1):
        token = cursor.tokens[index]
        if word_of(token) == "INTERVAL":
            total += _literal_us([each.text for each in cursor.tokens[index + 1 : index + 1 + _LITERAL_TOKENS_MAX]])
    return total


def _literal_us(words: Sequence[str]) -> int:
    """The length of the longest interval that these words begin with: `10 minutes`, `'1 hour'`, `'1' hour`; else 0."""
    for count in range(len(words), 0, -1):
        try:
            return abs(parse_interval_us(" ".join(words[:count])))
        except InvalidSql:
            continue
    return 0
