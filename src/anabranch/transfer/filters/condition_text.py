"""The text of a condition before DuckDB parses it: what its parser should not get."""

from __future__ import annotations

import re
from typing import Final

from anabranch import limits
from anabranch.core.sql_text import check_sql_text
from anabranch.errors import InvalidSql

__all__ = ["check_condition_text", "too_deep"]

_DEPTH_MAX: Final = 100
_BRACKETS: Final = re.compile(r"[()\[\]{}]")

_QUOTED: Final = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$""",
    re.DOTALL,
)
_OPEN: Final = re.compile(r"""['"]|/\*|\$\w*\$""")
_WITH: Final = re.compile(r"\bWITH\b(?!\s+TIME\b)", re.IGNORECASE)


def check_condition_text(where: str) -> None:
    """Raises InvalidSql for texts for which DuckDB's parser would need minutes or all memory: an unclosed quote,
    comment or bracket; brackets nested beyond some depth; and WITH, where each level of nesting takes six times as
    much. TooLarge."""
    check_sql_text(where, what="the condition", bytes_max=limits.SQL_BYTES_MAX)
    left = _QUOTED.sub(" ", where)
    if _OPEN.search(left):
        raise _refused(where, "a quote or a comment is not closed")
    if _WITH.search(left):
        raise _refused(where, "it may depend only on the event, not on a subquery")
    depth = 0
    for bracket in _BRACKETS.findall(left):
        depth += 1 if bracket in "([{" else -1
        if depth > _DEPTH_MAX:
            raise too_deep(where)
    if depth > 0:
        raise _refused(where, "a bracket is not closed")


def too_deep(where: str) -> InvalidSql:
    """The error for a condition that is nested too deeply."""
    return _refused(where, "it is nested too deeply")


def _refused(where: str, why: str) -> InvalidSql:
    return InvalidSql(f"the condition {where!r:.200} can't be used: {why}")
