"""Parses the clause EMIT: when the results of a window come, and what they are made of. Pure.

Its words, and what a pane is, are those of Beam; it stands where ksqlDB has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import Token, TokenType

from anabranch.core.intervals import parse_interval_us
from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.sql_tokens import value_at
from anabranch.spark.pipelines.windows.emit import MODES, EmitPolicy

__all__ = ["emit_policy"]

_FORM: Final = (
    "expected after EMIT: EARLY EVERY n EVENTS, EARLY EVERY 'interval', LATE WITHIN 'interval', LAST n EVENTS, "
    "LAST 'interval', ACCUMULATING, DISCARDING or RETRACTING"
)


def emit_policy(tokens: Sequence[Token], emit: int, values: Mapping[str, Any]) -> EmitPolicy:
    """The policy that the clause beginning at `emit` gives. `values` are those of parameters. Raises InvalidSql."""
    return _Clause(tokens, values).policy(emit)


@dataclass(frozen=True, slots=True)
class _Clause:
    tokens: Sequence[Token]
    values: Mapping[str, Any]
    given: dict[str, Any] = field(default_factory=dict)

    def policy(self, emit: int) -> EmitPolicy:
        index = emit + 1
        while index < len(self.tokens) or index == emit + 1:
            words = [token.text.upper() for token in self.tokens[index : index + 2]]
            first = words[0] if words else ""
            if first.lower() in MODES:
                self._give("mode", first.lower(), index)
                after = index + 1
            elif words == ["EARLY", "EVERY"]:
                after = self._amount(index + 2, "early_events", "early_us")
            elif words == ["LATE", "WITHIN"]:
                after = self._amount(index + 2, None, "late_us")
            elif first == "LAST":
                after = self._amount(index + 1, "last_events", "last_us")
            else:
                raise self._error(_FORM, index)
            comma = after < len(self.tokens) and self.tokens[after].token_type is TokenType.COMMA
            index = after + comma
            if comma and index == len(self.tokens):
                raise self._error(_FORM, index)
        return EmitPolicy(**self.given)

    def _give(self, name: str, value: object, index: int) -> None:
        if name in self.given:
            raise self._error("EMIT says twice the same", index)
        self.given[name] = value

    def _amount(self, index: int, events: str | None, interval: str) -> int:
        """Take a number of events or an interval. Returns the index of the token after it."""
        at = index
        if at < len(self.tokens) and self.tokens[at].text.upper() == "INTERVAL":
            at += 1
        value, after = value_at(self.tokens, at, self.values)
        counts = after < len(self.tokens) and self.tokens[after].text.upper() == "EVENTS" and at == index
        if counts and events is not None and isinstance(value, int) and value > 0:
            self._give(events, value, index)
            return after + 1
        if counts or not isinstance(value, str):
            raise self._error(_FORM, index)
        amount = parse_interval_us(value, self.tokens[at].line)
        if amount <= 0 or amount % 1_000:
            raise self._error("an interval of EMIT is of whole milliseconds, more than 0", index)
        self._give(interval, amount, index)
        return after

    def _error(self, message: str, index: int) -> InvalidSql:
        return InvalidSql(message, line=self.tokens[min(index, len(self.tokens) - 1)].line)
