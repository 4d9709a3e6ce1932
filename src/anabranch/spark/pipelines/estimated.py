"""Rewrites a query that sheds load, so that its aggregates estimate what all events would give. Pure.

    SELECT window.end AS closed, count(*) AS events, avg(celsius) AS celsius …

becomes a query with the columns `closed`, `events`, `events_error`, `celsius`, `celsius_error` and `_shed`. The formulas are
those of `anabranch.core.sample_estimates`, over the column `_shed_rate`, the chance with which an event was kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import Token, TokenType

from anabranch.core.sample_estimates import Z
from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.sql_tokens import closing, list_items, nesting
from anabranch.spark.quoting import quoted
from anabranch.spark.types import SHED_RATE

__all__ = ["SHED_COLUMN", "Replacement", "estimates"]

Replacement = tuple[int, int, str]
"""The first and the last token that are replaced, and the text in their place; the last one before the first: put before it."""

SHED_COLUMN: Final = "_shed"
_ESTIMATED: Final = ("count", "sum", "avg", "mean")
_FORM: Final = "SELECT columns, count(…) AS name, sum(…) AS name, avg(…) AS name FROM STREAM scope.name … GROUP BY …"
# Aggregates that a sample doesn't estimate by weights. Spark's plan shows those that are missing here.
_REFUSED: Final = re.compile(
    r"(min|max|first|last|any)(_value|_by)?|mode|median|std(dev)?(_\w+)?|var(iance|_\w+)|covar_\w+|corr|skewness|kurtosis"
    r"|percentile\w*|approx_\w+|count_if|count_min_sketch|(collect|array|string|list)_?agg|collect_(list|set)"
    r"|(hll|theta|kll|tuple|bitmap)_\w+|bloom_filter\w*|histogram_numeric|every|some|bool_(and|or)|bit_(and|or|xor)|regr_\w+"
    r"|try_(sum|avg)|product|session_window|count_window",
    re.IGNORECASE,
)
_NOT_WITH: Final = frozenset(
    {TokenType.JOIN, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.DISTINCT, TokenType.OVER}
    | {TokenType.QUALIFY, TokenType.LATERAL}
)


def estimates(text: str, tokens: Sequence[Token], begin: int) -> tuple[Replacement, ...]:
    """The replacements in the query whose tokens begin at `begin`. Raises InvalidSql, with the line, for what can't be
    estimated."""
    return _Rewriting(text, tokens, begin).replacements()


class _Rewriting:
    def __init__(self, text: str, tokens: Sequence[Token], begin: int) -> None:
        self._text = text
        self._tokens = tokens
        self._begin = begin

    def replacements(self) -> tuple[Replacement, ...]:
        self._refuse()
        end = self._from()
        found: list[Replacement] = []
        for first, stop in list_items(self._tokens, self._begin + 1, end):
            if call := self._call_of(first, stop):
                found.append(self._column(first, call, stop))
            elif inside := [index for index in range(first, stop) if self._is_call(index)]:
                name = self._tokens[inside[0]].text
                raise self._error(
                    f"with shed, {name}(…) is a column of its own, so that it has an error: compute with it in a second "
                    "statement",
                    inside[0],
                )
        if not found:
            raise self._error(f"shed requires count, sum or avg: {_FORM}", self._begin)
        for index in range(end, len(self._tokens)):  # HAVING
            if self._is_call(index):
                last = closing(self._tokens, index + 1)
                found.append((index, last, self._estimate(index, last)[0]))
        shed = f", 1 - count(1) / sum(1 / {SHED_RATE.name}) AS {SHED_COLUMN} "
        return (*found, (end, end - 1, shed))

    def _refuse(self) -> None:
        for index in range(self._begin, len(self._tokens)):
            token = self._tokens[index]
            if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
                continue
            # `a IS DISTINCT FROM b` compares.
            compares = token.token_type is TokenType.DISTINCT and self._tokens[index - 1].token_type in (
                TokenType.IS,
                TokenType.NOT,
            )
            named = token.text.upper()
            if token.token_type in _NOT_WITH and not compares:
                raise self._error(f"a query with shed can't have {named}: {_FORM}", index)
            if named == "EMIT" or (self._opens(index) and _REFUSED.fullmatch(token.text)):
                raise self._error(
                    f"{token.text} can't be estimated from a part of the events: omit shed, or use count, sum and avg",
                    index,
                )
            if index > self._begin and named == "SELECT":
                raise self._error(f"a query with shed can't have a subquery: {_FORM}", index)

    def _from(self) -> int:
        depth = 0
        selects = self._tokens[self._begin].token_type is TokenType.SELECT
        for index in range(self._begin, len(self._tokens) if selects else self._begin):
            depth += nesting(self._tokens[index])
            if (
                self._tokens[index].token_type is TokenType.FROM
                and not depth
                and self._tokens[index - 1].token_type is not TokenType.DISTINCT
            ):
                return index
        raise self._error(f"shed requires: {_FORM}", self._begin)

    def _call_of(self, first: int, stop: int) -> int | None:
        """The last token of the aggregate that is this item, before its name."""
        if not self._is_call(first):
            return None
        last = closing(self._tokens, first + 1)
        rest = self._tokens[last + 1 : stop]
        if rest and rest[0].token_type is TokenType.ALIAS:
            rest = rest[1:]
        elif not rest:
            raise self._error(f"name the column: {self._text_of(first, last)} AS name", first)
        plain = len(rest) == 1 and rest[0].token_type is not TokenType.NUMBER
        return last if plain and rest[0].token_type is not TokenType.STRING else None

    def _column(self, first: int, last: int, stop: int) -> Replacement:
        name = self._tokens[stop - 1].text
        value, error = self._estimate(first, last)
        return first, stop - 1, f"{value} AS {quoted(name)}, {error} AS {quoted(f'{name}_error')}"

    def _estimate(self, first: int, last: int) -> tuple[str, str]:
        """The value and its error as SQL."""
        function = self._tokens[first].text.lower()
        if len(list_items(self._tokens, first + 2, last)) > 1 or last == first + 2:
            raise self._error(f"with shed, {function} has one argument", first)
        value = self._text_of(first + 2, last - 1)
        if value == "*":
            if function != "count":
                raise self._error(f"{function}(*): expected a column", first)
            value = "1"
        return {"count": _count, "sum": _sum}.get(function, _average)(value)

    def _is_call(self, index: int) -> bool:
        token = self._tokens[index]
        plain = token.token_type is not TokenType.STRING and token.text.lower() in _ESTIMATED
        return plain and self._opens(index) and self._tokens[index - 1].token_type is not TokenType.DOT

    def _opens(self, index: int) -> bool:
        return index + 1 < len(self._tokens) and self._tokens[index + 1].token_type is TokenType.L_PAREN

    def _text_of(self, first: int, last: int) -> str:
        return self._text[self._tokens[first].start : self._tokens[last].end + 1]

    def _error(self, message: str, index: int) -> InvalidSql:
        return InvalidSql(message, line=self._tokens[index].line)


def _weight(value: str) -> str:
    """The weight of events with a value."""
    return f"IF(({value}) IS NULL, NULL, 1 / {SHED_RATE.name})"


def _excess(value: str) -> str:
    return f"{_weight(value)} * ({_weight(value)} - 1)"


def _sampled(value: str) -> str:
    """The weight of events with a value that were not kept for certain."""
    return f"IF({SHED_RATE.name} < 1, {_weight(value)}, NULL)"


def _double(value: str) -> str:
    return f"CAST(({value}) AS DOUBLE)"


def _half_width(step: str, variance: str) -> str:
    return f"({Z**2 / 2}D * {step} + sqrt({Z**2}D * {variance} + {Z**4 / 4}D * {step} * {step}))"


def _count(value: str) -> tuple[str, str]:
    size = f"coalesce(sum({_weight(value)}), 0D)"
    variance = f"coalesce(sum({_excess(value)}), 0D)"
    of_window = f"sum({_excess('1')}) / nullif(sum({_sampled('1')}), 0D)"
    own = f"{variance} / nullif(sum({_sampled(value)}), 0D)"
    step = f"coalesce(IF({size} > 0, {own}, {of_window}), 0D)"
    error = f"(IF({step} > 0, 0.5D, 0D) + {_half_width(step, variance)})"
    return f"CAST(round({size}) AS BIGINT)", error


def _sum(value: str) -> tuple[str, str]:
    number, weight = _double(value), _weight(value)
    variance = f"sum({_excess(value)} * {number} * {number})"
    step = f"coalesce({variance} / nullif(sum({_sampled(value)} * abs({number})), 0D), 0D)"
    return f"sum({weight} * {number})", _half_width(step, variance)


def _average(value: str) -> tuple[str, str]:
    number, weight = _double(value), _weight(value)
    size = f"sum({weight})"
    mean = f"(sum({weight} * {number}) / {size})"
    squares, products = f"sum({_excess(value)} * {number} * {number})", f"sum({_excess(value)} * {number})"
    residuals = f"greatest(0D, {squares} - 2 * {mean} * {products} + {mean} * {mean} * sum({_excess(value)}))"
    sampled = f"count(IF({weight} > 1, 1, NULL))"
    freedom = f"({sampled} - 1)"
    quantile = (
        f"({Z}D + {(Z**3 + Z) / 4}D / {freedom} + {(5 * Z**5 + 16 * Z**3 + 3 * Z) / 96}D / pow({freedom}, 2)"
        f" + {(3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384}D / pow({freedom}, 3))"
    )
    error = f"{quantile} * sqrt({residuals} * {sampled} / {freedom}) / {size}"
    return mean, f"CASE {sampled} WHEN 0 THEN 0D WHEN 1 THEN NULL ELSE {error} END"
