"""The text of a DuckDB error as one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

_NEAR: Final = re.compile(r'syntax error at or near "([^"]+)"')


class SqlProblem(NamedTuple):
    """What is wrong, and in which line, counted from 1, if known."""

    message: str
    line: int | None


def sql_problem(error: str, *, keywords: Sequence[str] = ()) -> SqlProblem:
    """What DuckDB's message says, on one line. For a syntax error the kind is omitted, and the most similar of the
    `keywords` is suggested."""
    problem, _, position = error.partition("\n\nLINE ")
    number = re.match(r"\d+", position)
    message = " ".join(problem.split())
    if near := _NEAR.search(message):
        word = near[1].upper()
        alike = [] if word in keywords else get_close_matches(word, keywords, n=1, cutoff=0.7)
        message = without_kind(message)
        if alike:
            message += f"; did you mean {alike[0]}?"
        elif re.search(r"\bat\b", position, re.IGNORECASE):
            message += ' (AT is a keyword of DuckDB: write a column of that name as "at")'
    return SqlProblem(message, int(number[0]) if number else None)


def without_kind(message: str) -> str:
    """The message without the kind of error that it begins with."""
    return re.sub(r"^\w+ Error: ", "", message)
