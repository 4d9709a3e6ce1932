"""What holds for every text of SQL, whatever parses it."""

from __future__ import annotations

import re
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidSql, TooLarge

__all__ = ["check_sql_text", "place_of"]

_LONG_NUMBER: Final = re.compile(rf"\d{{{limits.SQL_DIGITS_MAX + 1}}}")


def check_sql_text(text: str, *, what: str, bytes_max: int) -> None:
    """Raises TooLarge, `what` being its name in the message; InvalidSql, with the line, for text that is not Unicode, and for
    numbers of more than `limits.SQL_DIGITS_MAX` digits, over which parsers take hours."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise InvalidSql(
            f"it is not Unicode: {exc.reason} at character {exc.start}", place_of(text, exc.start)[0]
        ) from exc
    if size > bytes_max:
        raise TooLarge(what, size, bytes_max)
    if (found := _LONG_NUMBER.search(text)) is not None:
        raise InvalidSql(f"a number has more than {limits.SQL_DIGITS_MAX:,} digits", place_of(text, found.start())[0])


def place_of(text: str, at: int) -> tuple[int, int]:
    """The line of a position in a text, and the character in that line, both from 1 on."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
