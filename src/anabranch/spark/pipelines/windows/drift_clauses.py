"""Divides a query with the clause DETECT DRIFT into the values that a detector takes, and the results it is asked for. Pure.

    SELECT device, drift.time AS at, drift.mean_before, drift.mean_after
    FROM STREAM iot.sensors WHERE unit = 'C'
    DETECT DRIFT OF celsius BY device USING adwin(delta => 0.002)

The clause stands where EMIT does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast

from sqlglot import Token, TokenType

from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.sql_tokens import nesting, word_of
from anabranch.spark.pipelines.windows.clauses import RESULTS_VIEW, Relation, WindowedQuery
from anabranch.spark.pipelines.windows.columns import KEY
from anabranch.spark.pipelines.windows.drift import METHODS, VALUE, DriftDetector, Method
from anabranch.spark.quoting import quoted

__all__ = ["drift_query"]

_FORM: Final = (
    "SELECT … FROM STREAM scope.name [WHERE …] DETECT DRIFT OF value [BY column, …] "
    "[USING adwin | page_hinkley [(parameter => number, …)]]"
)
_REFUSED: Final = frozenset(
    {TokenType.JOIN, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.GROUP_BY, TokenType.HAVING}
    | {TokenType.ORDER_BY, TokenType.LIMIT, TokenType.QUALIFY, TokenType.LATERAL, TokenType.DISTINCT}
)


def drift_query(
    text: str, tokens: Sequence[Token], begin: int, relations: Sequence[Relation], values: Mapping[str, Any]
) -> WindowedQuery | None:
    """The parts of the query whose tokens begin at `begin`; None if it has no such clause. `values` are those of
    parameters. Raises InvalidSql, with the line."""
    for index in range(begin, len(tokens) - 1):
        if list(map(word_of, tokens[index : index + 3])) == ["DETECT", "DRIFT", "OF"]:
            return _DriftQuery(text, tokens, begin, index, relations, values).divided()
    return None


class _DriftQuery:
    def __init__(
        self,
        text: str,
        tokens: Sequence[Token],
        begin: int,
        clause: int,
        relations: Sequence[Relation],
        values: Mapping[str, Any],
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._begin = begin
        self._clause = clause
        self._relations = relations
        self._values = values

    def divided(self) -> WindowedQuery:
        """See `drift_query`."""
        relation = self._relation()
        detector, value = self._detector()
        keys = "".join(f", {quoted(name)} AS {KEY}{number}" for number, name in enumerate(detector.keys))
        head = self._text_of(self._begin, relation.first - 1)
        after = relation.last + 1
        rest = self._text_of(after, self._clause) if after < self._clause else ""
        alias = relation.name if after == self._begun_where else self._tokens[self._begun_where - 1].text
        lines = "\n" * head.count("\n")
        return WindowedQuery(
            detector,
            f"SELECT *, CAST(({value}) AS DOUBLE) AS {VALUE}{keys} {lines}FROM {relation.text} {rest}",
            f"{head} FROM {RESULTS_VIEW} AS {quoted(alias)}",
            len(detector.keys),
            frozenset(),
        )

    def _relation(self) -> Relation:
        """The stream that the query reads; it has nothing else before its clause but a name for it and WHERE."""
        for index in range(self._begin, self._clause):
            kind, before = self._tokens[index].token_type, self._tokens[index - 1].token_type
            compares = before in (TokenType.IS, TokenType.NOT)  # IS DISTINCT FROM
            relates = kind is TokenType.OVER and before is TokenType.R_PAREN  # results of one micro-batch only
            if relates or (kind in _REFUSED and not compares):
                self._fail(index)
        if len(self._relations) != 1 or self._tokens[self._begin].token_type is not TokenType.SELECT:
            self._fail(self._begin)
        relation = self._relations[0]
        if not (relation.is_stream and relation.first < self._clause and self._word(relation.first - 1) == "FROM"):
            self._fail(relation.first)
        at = relation.last + 1
        at += at < self._clause and self._tokens[at].token_type is TokenType.ALIAS
        at += at < self._clause and self._word(at) != "WHERE"
        if at < self._clause and self._word(at) != "WHERE":
            self._fail(at)
        self._begun_where = at
        return relation

    def _text_of(self, first: int, after: int) -> str:
        return self._text[self._tokens[first].start : self._tokens[after - 1].end + 1]

    def _detector(self) -> tuple[DriftDetector, str]:
        at = first = self._clause + 3
        depth = 0
        while at < len(self._tokens):
            depth += nesting(self._tokens[at])
            if not depth and self._word(at) in ("BY", "USING"):
                break
            at += 1
        if at == first:
            self._fail(at)
        value = self._text_of(first, at)
        keys: list[str] = []
        if self._word(at) == "BY":
            at += 1
            while True:
                if at >= len(self._tokens) or self._tokens[at].token_type in (TokenType.STRING, TokenType.NUMBER):
                    self._fail(at)
                keys.append(self._tokens[at].text)
                at += 1
                if at >= len(self._tokens) or self._tokens[at].token_type is not TokenType.COMMA:
                    break
                at += 1
        method = "adwin"
        parameters: dict[str, Any] = {}
        if self._word(at) == "USING":
            method = self._word(at + 1).lower()
            if method not in METHODS:
                self._fail(at + 1)
            at += 2
            if at < len(self._tokens) and self._tokens[at].token_type is TokenType.L_PAREN:
                parameters, at = self._parameters(at + 1, method)
        if at < len(self._tokens):
            self._fail(at)
        return DriftDetector(cast(Method, method), parameters, tuple(keys)), value

    def _parameters(self, at: int, method: str) -> tuple[dict[str, Any], int]:
        known = METHODS[method]
        found: dict[str, Any] = {}
        while at < len(self._tokens) and self._tokens[at].token_type is not TokenType.R_PAREN:
            name = self._word(at).lower()
            if name not in known or name in found:
                self._fail(at, f"{method} has the parameters {', '.join(known)}, each once")
            if self._word(at + 1) not in ("=>", "="):
                self._fail(at + 1, f"expected => and a value after {name}")
            text, at = self._value(at + 2)
            try:
                found[name] = known[name](text)
            except ValueError:
                self._fail(at - 1, f"{name} is {'a number' if known[name] is float else 'a whole number'}, not {text}")
            if at < len(self._tokens) and self._tokens[at].token_type is TokenType.COMMA:
                at += 1
        if at >= len(self._tokens):
            self._fail(at)
        return found, at + 1

    def _value(self, at: int) -> tuple[str, int]:
        if at + 1 < len(self._tokens) and self._tokens[at].token_type is TokenType.COLON:
            name = self._tokens[at + 1].text
            if name in self._values:
                return str(self._values[name]), at + 2
        if at >= len(self._tokens):
            self._fail(at)
        return self._tokens[at].text, at + 1

    def _word(self, index: int) -> str:
        return word_of(self._tokens[index]) if index < len(self._tokens) else ""

    def _fail(self, index: int, message: str | None = None) -> NoReturn:
        line = self._tokens[min(index, len(self._tokens) - 1)].line
        raise InvalidSql(message or f"expected {_FORM}", line=line)
