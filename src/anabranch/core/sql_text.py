"""What holds for every text of SQL, before any parser sees it."""

from __future__ import annotations

import re
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidSql, TooLarge

__all__ = ["check_sql_text"]

_LONG_NUMBER: Final = re.compile(rf"\d{{{limits.SQL_DIGITS_MAX + 1}}}")


def check_sql_text(text: str, *, what: str, bytes_max: int) -> None:
    """Raises TooLarge, `what` being its name in the message; InvalidSql, with the line, for text that is not Unicode, and for
    numbers of more than `limits.SQL_DIGITS_MAX` digits, over which parsers take hours."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise InvalidSql(f"it is not Unicode: {exc.reason} at character {exc.start}", _line(text, exc.start)) from exc
    if size > bytes_max:
        raise TooLarge(what, size, bytes_max)
    if (found := _LONG_NUMBER.search(text)) is not None:
        raise InvalidSql(f"a number has more than {limits.SQL_DIGITS_MAX:,} digits", _line(text, found.start()))


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
