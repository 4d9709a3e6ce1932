"""Divides a query with the clause DETECT DRIFT into the values that a detector takes, and the results it is asked for. Pure.

    SELECT device, drift.time AS at, drift.mean_before, drift.mean_after
    FROM STREAM iot.sensors WHERE unit = 'C'
    DETECT DRIFT OF celsius BY device USING adwin(delta => 0.002)

The clause stands where EMIT does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from sqlglot import TokenType

from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.sql_tokens import outside_parentheses, word_of
from anabranch.spark.pipelines.windows.clauses import RESULTS_VIEW, Relation, WindowedQuery
from anabranch.spark.pipelines.windows.columns import KEY
from anabranch.spark.pipelines.windows.drift import METHODS, VALUE, DriftDetector, Method
from anabranch.spark.quoting import quoted

__all__ = ["drift_query"]

_FORM: Final = (
    "expected SELECT … FROM STREAM scope.name [WHERE …] DETECT DRIFT OF value [BY column, …] "
    "[USING adwin | page_hinkley [(parameter => number, …)]]"
)
_REFUSED: Final = frozenset(
    {TokenType.JOIN, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.GROUP_BY, TokenType.HAVING}
    | {TokenType.ORDER_BY, TokenType.LIMIT, TokenType.QUALIFY, TokenType.LATERAL, TokenType.DISTINCT}
)


def drift_query(cursor: Cursor, begin: int, relations: Sequence[Relation]) -> WindowedQuery | None:
    """The parts of the query whose tokens begin at `begin`; None if it has no such clause. Raises InvalidSql, with the line."""
    for index in range(begin, len(cursor.tokens) - 1):
        if list(map(word_of, cursor.tokens[index : index + 3])) == ["DETECT", "DRIFT", "OF"]:
            return _divided(Cursor(cursor.text, cursor.tokens, cursor.values, at=index), begin, relations)
    return None


def _divided(cursor: Cursor, begin: int, relations: Sequence[Relation]) -> WindowedQuery:
    """The parts of a query whose clause is at the cursor."""
    clause = cursor.at
    relation, after_name = _relation(cursor, begin, relations)
    detector, value = _detector(cursor)
    keys = "".join(f", {quoted(name)} AS {KEY}{number}" for number, name in enumerate(detector.keys))
    head = cursor.text_of(begin, relation.first - 1)
    after = relation.last + 1
    alias = relation.name if after == after_name else cursor.tokens[after_name - 1].text
    lines = "\n" * head.count("\n")
    return WindowedQuery(
        detector,
        f"SELECT *, CAST(({value}) AS DOUBLE) AS {VALUE}{keys} {lines}FROM {relation.text} {cursor.text_of(after, clause)}",
        f"{head} FROM {RESULTS_VIEW} AS {quoted(alias)}",
        len(detector.keys),
        frozenset(),
    )


def _relation(cursor: Cursor, begin: int, relations: Sequence[Relation]) -> tuple[Relation, int]:
    """The stream that the query reads, and the token after its name in the query, which has nothing else before the clause but
    WHERE."""
    clause = cursor.at
    for index in range(begin, clause):
        kind, before = cursor.kind_at(index), cursor.kind_at(index - 1)
        compares = before in (TokenType.IS, TokenType.NOT)  # IS DISTINCT FROM
        relates = kind is TokenType.OVER and before is TokenType.R_PAREN  # results of one micro-batch only
        if relates or (kind in _REFUSED and not compares):
            cursor.fail(_FORM, at=index)
    if len(relations) != 1 or cursor.kind_at(begin) is not TokenType.SELECT:
        cursor.fail(_FORM, at=begin)
    relation = relations[0]
    if not (relation.is_stream and relation.first < clause and cursor.word_at(relation.first - 1) == "FROM"):
        cursor.fail(_FORM, at=relation.first)
    at = relation.last + 1
    at += at < clause and cursor.kind_at(at) is TokenType.ALIAS
    at += at < clause and cursor.word_at(at) != "WHERE"
    if at < clause and cursor.word_at(at) != "WHERE":
        cursor.fail(_FORM, at=at)
    return relation, at


def _detector(cursor: Cursor) -> tuple[DriftDetector, str]:
    """Step over the clause. Returns the detector and the SQL of its value."""
    begin = cursor.at + 3
    outside = outside_parentheses(cursor.tokens, begin)
    cursor.at = next((index for index in outside if cursor.word_at(index) in ("BY", "USING")), len(cursor.tokens))
    value = cursor.text_of(begin, cursor.at)
    if not value:
        cursor.fail(_FORM)
    keys: list[str] = []
    if cursor.take("BY"):
        while not keys or cursor.take(","):
            token = cursor.peek()
            if token is None or token.token_type in (TokenType.STRING, TokenType.NUMBER):
                cursor.fail(_FORM)
            keys.append(token.text)
            cursor.at += 1
    method = "adwin"
    parameters: dict[str, Any] = {}
    if cursor.take("USING"):
        method = cursor.word().lower()
        if method not in METHODS:
            cursor.fail(_FORM)
        cursor.at += 1
        if cursor.take("("):
            parameters = _parameters(cursor, method)
    if cursor.peek() is not None:
        cursor.fail(_FORM)
    return DriftDetector(cast(Method, method), parameters, tuple(keys)), value


def _parameters(cursor: Cursor, method: str) -> dict[str, Any]:
    """Step over the parameters and the parenthesis behind them."""
    known = METHODS[method]
    found: dict[str, Any] = {}
    while not cursor.take(")"):
        if cursor.peek() is None:
            cursor.fail(_FORM)
        name = cursor.word().lower()
        if name not in known or name in found:
            cursor.fail(f"{method} has the parameters {', '.join(known)}, each once")
        cursor.at += 1
        if not (cursor.take("=>") or cursor.take("=")):
            cursor.fail(f"expected => and a value after {name}")
        if cursor.peek() is None:
            cursor.fail(_FORM)
        if (parameter := cursor.parameter_at(cursor.at)) is not None:
            text = str(cursor.values[parameter])
            cursor.at += 1
        else:
            text = cursor.tokens[cursor.at].text
        cursor.at += 1
        try:
            found[name] = known[name](text)
        except ValueError:
            kind = "a number" if known[name] is float else "a whole number"
            cursor.fail(f"{name} is {kind}, not {text}", at=cursor.at - 1)
        cursor.take(",")
    return found
