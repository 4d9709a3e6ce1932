"""Translates SUBSTRING, LEFT and RIGHT where the start may be below 1 or the length negative.

DuckDB and Spark differ from each other in these cases, and from the dialects."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import LIKE_POSTGRESQL, Conversion, NotTranslated
from anabranch.query.dialects.kinds import overwrite
from anabranch.query.dialects.written_calls import NOT_NEGATIVE, POSITION_FUNCTIONS, name_of

COUNTS_BEFORE_THE_TEXT: Final = LIKE_POSTGRESQL | {"azure"}
"""Dialects where a negative start is a place before the first character; in all others it counts from the end."""
_START_BELOW_1_UNDOCUMENTED: Final = "snowflake"
_REFUSES_NEGATIVE_LENGTHS: Final = COUNTS_BEFORE_THE_TEXT | {"bigquery"}
"""Dialects where a negative length is an error."""
_FIRST_CHARACTER: Final = {
    "flink": "WHEN {n} + {size} < 0 THEN {size} + 1 WHEN {n} < 0 THEN {n} + {size} + 1 WHEN {n} = 0 THEN 1",
    "trino": "WHEN {n} = 0 OR {n} + {size} < 0 THEN {size} + 1 WHEN {n} < 0 THEN {n} + {size} + 1",
    "ksqldb": "WHEN {n} = 0 OR {n} + {size} < 0 THEN 1 WHEN {n} < 0 THEN {n} + {size} + 1",
    "bigquery": "WHEN {n} = 0 OR {n} + {size} < 0 THEN 1 WHEN {n} < 0 THEN {n} + {size} + 1",
    **dict.fromkeys(COUNTS_BEFORE_THE_TEXT, "WHEN {n} < 1 THEN 1"),
}
"""For each dialect, the CASE branches that give the first character, for a start `n` below 1 in a text of length `size`. A
start beyond the end gives an empty text."""


def lower_bound(node: exp.Expr | None) -> int | None:
    """A lower bound of an integer expression; None if none is known."""
    match node:
        case exp.Paren():
            return lower_bound(node.this)
        case exp.Literal() | exp.Neg() if node.is_int:
            return int(node.to_py())
        case exp.Add():
            parts = lower_bound(node.this), lower_bound(node.expression)
            return None if None in parts else sum(each or 0 for each in parts)
        case exp.Case():
            branches = [*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")]
            known = [lower_bound(each) for each in branches if each is not None and not isinstance(each, exp.Null)]
            return None if None in known else min((each or 0 for each in known), default=None)
        case exp.Length():
            return 0
        case exp.RowNumber():
            return 1
        case exp.Greatest():
            bounds = [lower_bound(each) for each in (node.this, *node.expressions)]
            return max((each for each in bounds if each is not None), default=None)
        case exp.Var():
            return 0 if node.meta.get(NOT_NEGATIVE) else None
    return 0 if node is not None and name_of(node) in POSITION_FUNCTIONS else None


def write_substring(node: exp.Substring, to: Conversion) -> None:
    """Rewrite the call, unless DuckDB and Spark both compute it as the dialect does. Raises NotTranslated."""
    start, length = node.args.get("start"), node.args.get("length")
    _check_start(start, to.dialect)
    starts_inside = start is None or _at_least(start, 1)
    if starts_inside and (length is None or _at_least(length, 0)):
        return
    text = _sql(node.this, to)
    start_sql = "1" if start is None else _sql(start, to)
    first = start_sql
    if not starts_inside:
        first = f"CASE {_FIRST_CHARACTER[to.dialect].format(n=start_sql, size=f'length({text})')} ELSE {start_sql} END"
    if length is None:
        overwrite(node, f"substring({text}, {first})")
        return
    count = _length(length, to)
    if not starts_inside and to.dialect in COUNTS_BEFORE_THE_TEXT:
        # Characters before the first count toward the length, but are not returned.
        left = f"{start_sql} + {count} - 1"
        count = f"CASE WHEN {start_sql} < 1 THEN CASE WHEN {left} < 0 THEN 0 ELSE {left} END ELSE {count} END"
    overwrite(node, f"substring({text}, {first}, {count})")


def _check_start(start: exp.Expr | None, dialect: str) -> None:
    known = lower_bound(start)
    constant = isinstance(start, exp.Literal | exp.Neg)
    if constant and known is not None and (known == 0 or (known < 0 and dialect in COUNTS_BEFORE_THE_TEXT)):
        raise NotTranslated("a substring that starts before the first character is not translated; start at 1 or later")
    if dialect == _START_BELOW_1_UNDOCUMENTED and start is not None and (known is None or known < 1):
        raise NotTranslated(
            "a substring that may start before the first character is not translated; write GREATEST(n, 1) for the start, "
            "or RIGHT(x, n) for the end of a text"
        )


def write_end_of_text(node: exp.Left | exp.Right, to: Conversion) -> None:
    """Rewrite `LEFT(x, n)` or `RIGHT(x, n)`, unless DuckDB and Spark both compute it as the dialect does."""
    if _at_least(node.expression, 0):
        return
    text, count = _sql(node.this, to), _sql(node.expression, to)
    if to.dialect not in LIKE_POSTGRESQL:
        count = _length(node.expression, to)
    elif to.pipeline:  # a negative n: all but the last (LEFT) or first (RIGHT) -n characters
        count = f"CASE WHEN {count} < 0 THEN greatest(length({text}) + {count}, 0) ELSE {count} END"
    overwrite(node, f"{'left' if isinstance(node, exp.Left) else 'right'}({text}, {count})")


def _length(node: exp.Expr, to: Conversion) -> str:
    """The length; if negative, what the dialect makes of it: null, an error or 0."""
    count = _sql(node, to)
    if _at_least(node, 0):
        return count
    if to.dialect == "flink" and isinstance(node.parent, exp.Substring):
        return f"CASE WHEN {count} >= 0 THEN {count} END"
    if to.dialect in _REFUSES_NEGATIVE_LENGTHS:
        error = f"{to.either('error', 'raise_error')}({to.quoted('the length of a text is negative')})"
        return f"(CASE WHEN {count} < 0 THEN {error} ELSE {count} END)"
    return f"CASE WHEN {count} < 0 THEN 0 ELSE {count} END"


def _at_least(node: exp.Expr, number: int) -> bool:
    return (known := lower_bound(node)) is not None and known >= number


def _sql(node: exp.Expr, to: Conversion) -> str:
    written = to.written(node)
    return written if isinstance(node, exp.Column | exp.Literal | exp.Paren) else f"({written})"
