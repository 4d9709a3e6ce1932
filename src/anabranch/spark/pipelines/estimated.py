"""Rewrites a query that sheds load, so that its aggregates estimate what all events would give. Pure.

    SELECT window.end AS closed, count(*) AS events, avg(celsius) AS celsius …

becomes a query with the columns `closed`, `events`, `events_error`, `celsius`, `celsius_error` and `_shed`. The formulas are
those of `anabranch.core.sample_estimates`, over the column `_shed_rate`, the chance with which an event was kept.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import TokenType

from anabranch.core.sample_estimates import Z
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.sql_tokens import closing, list_items, outside_parentheses
from anabranch.spark.quoting import quoted
from anabranch.spark.types import SHED_RATE

__all__ = ["SHED_COLUMN", "Replacement", "estimates"]

Replacement = tuple[int, int, str]
"""The first and the last token that are replaced, and the text in their place; a last token
before the first one: the text is inserted before the first one."""

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


def estimates(cursor: Cursor, begin: int) -> tuple[Replacement, ...]:
    """The replacements in the query whose tokens begin at `begin`. Raises InvalidSql, with the line, for what can't be
    estimated."""
    _refuse(cursor, begin)
    end = _from(cursor, begin)
    found: list[Replacement] = []
    for first, stop in list_items(cursor.tokens, begin + 1, end):
        if last := _call_of(cursor, first, stop):
            name, (value, error) = cursor.tokens[stop - 1].text, _estimate(cursor, first, last)
            found.append((first, stop - 1, f"{value} AS {quoted(name)}, {error} AS {quoted(f'{name}_error')}"))
        elif inside := [index for index in range(first, stop) if _is_call(cursor, index)]:
            cursor.fail(
                f"with shed, {cursor.tokens[inside[0]].text}(…) is a column of its own, so that it has an error: compute with "
                "it in a second statement",
                at=inside[0],
            )
    if not found:
        cursor.fail(f"shed requires count, sum or avg: {_FORM}", at=begin)
    for index in range(end, len(cursor.tokens)):  # HAVING
        if _is_call(cursor, index):
            last = closing(cursor.tokens, index + 1)
            found.append((index, last, _estimate(cursor, index, last)[0]))
    shed = f", 1 - count(1) / sum(1 / {SHED_RATE.name}) AS {SHED_COLUMN} "
    return (*found, (end, end - 1, shed))


def _refuse(cursor: Cursor, begin: int) -> None:
    for index in range(begin, len(cursor.tokens)):
        kind, word, text = cursor.kind_at(index), cursor.word_at(index), cursor.tokens[index].text
        # `a IS DISTINCT FROM b` compares.
        compares = kind is TokenType.DISTINCT and cursor.kind_at(index - 1) in (TokenType.IS, TokenType.NOT)
        if kind in _NOT_WITH and not compares:
            cursor.fail(f"a query with shed can't have {word}: {_FORM}", at=index)
        calls = word and cursor.kind_at(index + 1) is TokenType.L_PAREN
        if word == "EMIT" or (calls and _REFUSED.fullmatch(text)):
            cursor.fail(
                f"{text} can't be estimated from a part of the events: omit shed, or use count, sum and avg", at=index
            )
        if index > begin and word == "SELECT":
            cursor.fail(f"a query with shed can't have a subquery: {_FORM}", at=index)


def _from(cursor: Cursor, begin: int) -> int:
    kind = cursor.kind_at
    outside = outside_parentheses(cursor.tokens, begin) if kind(begin) is TokenType.SELECT else ()
    names = (at for at in outside if kind(at) is TokenType.FROM and kind(at - 1) is not TokenType.DISTINCT)
    found = next(names, None)
    if found is None:
        cursor.fail(f"shed requires: {_FORM}", at=begin)
    return found


def _call_of(cursor: Cursor, first: int, stop: int) -> int | None:
    """The last token of the aggregate's call, if this item is one with a name; else None."""
    if not _is_call(cursor, first):
        return None
    last = closing(cursor.tokens, first + 1)
    rest = cursor.tokens[last + 1 : stop]
    if rest and rest[0].token_type is TokenType.ALIAS:
        rest = rest[1:]
    elif not rest:
        cursor.fail(f"name the column: {cursor.text_of(first, last + 1)} AS name", at=first)
    return last if len(rest) == 1 and rest[0].token_type not in (TokenType.NUMBER, TokenType.STRING) else None


def _estimate(cursor: Cursor, first: int, last: int) -> tuple[str, str]:
    """The value and its error as SQL."""
    function = cursor.tokens[first].text.lower()
    if len(list_items(cursor.tokens, first + 2, last)) > 1 or last == first + 2:
        cursor.fail(f"with shed, {function} has one argument", at=first)
    value = cursor.text_of(first + 2, last)
    if value == "*":
        if function != "count":
            cursor.fail(f"{function}(*): expected a column", at=first)
        value = "1"
    return {"count": _count, "sum": _sum}.get(function, _average)(value)


def _is_call(cursor: Cursor, index: int) -> bool:
    """True for a call of an aggregate that is estimated, whose name may be quoted."""
    named = cursor.kind_at(index) is not TokenType.STRING and cursor.tokens[index].text.lower() in _ESTIMATED
    return named and cursor.kind_at(index + 1) is TokenType.L_PAREN and not cursor.is_dot(index - 1)


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
