"""Parses the clause EMIT: when the results of a window come, and what they are made of. Pure.

Its words, and what a pane is, are those of Beam; it stands where ksqlDB has it.
"""

from __future__ import annotations

from typing import Any, Final

from sqlglot import TokenType

from anabranch.core.intervals import parse_interval_us
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.windows.emit import MODES, EmitPolicy

__all__ = ["emit_policy"]

_FORM: Final = (
    "expected after EMIT: EARLY EVERY n EVENTS, EARLY EVERY 'interval', LATE WITHIN 'interval', LAST n EVENTS, "
    "LAST 'interval', ACCUMULATING, DISCARDING or RETRACTING"
)


def emit_policy(cursor: Cursor) -> EmitPolicy:
    """The policy that the clause at the cursor gives, up to the end of the statement. Raises InvalidSql."""
    cursor.take("EMIT")
    given: dict[str, Any] = {}
    while True:
        begin, word = cursor.at, cursor.word()
        words = (word, cursor.word_at(begin + 1))
        if word.lower() in MODES:
            cursor.at += 1
            name, value = "mode", word.lower()
        elif words == ("EARLY", "EVERY"):
            cursor.at += 2
            name, value = _amount(cursor, "early_events", "early_us")
        elif words == ("LATE", "WITHIN"):
            cursor.at += 2
            name, value = _amount(cursor, None, "late_us")
        elif cursor.take("LAST"):
            name, value = _amount(cursor, "last_events", "last_us")
        else:
            cursor.fail(_FORM, at=begin)
        if name in given:
            cursor.fail("EMIT says twice the same", at=begin)
        given[name] = value
        if cursor.kind_at(cursor.at) is TokenType.COMMA:
            cursor.at += 1
        elif cursor.peek() is None:
            return EmitPolicy(**given)


def _amount(cursor: Cursor, events: str | None, interval: str) -> tuple[str, Any]:
    """Step over a number of events or an interval."""
    begin, has_unit = cursor.at, cursor.take("INTERVAL")
    line, value = cursor.tokens[min(cursor.at, len(cursor.tokens) - 1)].line, cursor.value()
    counts = not has_unit and cursor.take("EVENTS")
    if counts and events is not None and isinstance(value, int) and value > 0:
        return events, value
    if counts or not isinstance(value, str):
        cursor.fail(_FORM, at=begin)
    amount_us = parse_interval_us(value, line)
    if amount_us <= 0 or amount_us % 1_000:
        cursor.fail("an interval of EMIT is of whole milliseconds, more than 0", at=begin)
    return interval, amount_us
