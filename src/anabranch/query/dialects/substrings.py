"""Parts of texts by places and lengths that are computed: what is before the text, and what is shorter than nothing.

DuckDB and Spark differ there from each other, and from the dialects."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import LIKE_POSTGRESQL, Conversion, NotTranslated
from anabranch.query.dialects.kinds import overwrite
from anabranch.query.dialects.written_calls import NOT_NEGATIVE, PLACES, name_of

COUNTS_BEFORE_THE_TEXT: Final = LIKE_POSTGRESQL | {"azure"}
"""A substring from a negative place begins before the text; in the others it counts from the end."""
_NOT_DOCUMENTED: Final = "snowflake"
_REFUSES_LENGTHS: Final = COUNTS_BEFORE_THE_TEXT | {"bigquery"}
"""A negative length is an error."""
_BEGINS: Final = {
    "flink": "WHEN {n} + {size} < 0 THEN {size} + 1 WHEN {n} < 0 THEN {n} + {size} + 1 WHEN {n} = 0 THEN 1",
    "trino": "WHEN {n} = 0 OR {n} + {size} < 0 THEN {size} + 1 WHEN {n} < 0 THEN {n} + {size} + 1",
    "ksqldb": "WHEN {n} = 0 OR {n} + {size} < 0 THEN 1 WHEN {n} < 0 THEN {n} + {size} + 1",
    "bigquery": "WHEN {n} = 0 OR {n} + {size} < 0 THEN 1 WHEN {n} < 0 THEN {n} + {size} + 1",
    **dict.fromkeys(COUNTS_BEFORE_THE_TEXT, "WHEN {n} < 1 THEN 1"),
}
"""Of each dialect the place where a substring begins, in a text of this size, if its place `n` may be below 1. Behind the text
it is empty."""


def least(node: exp.Expr | None) -> int | None:
    """What a whole number is at least; None if that is not known."""
    match node:
        case exp.Paren():
            return least(node.this)
        case exp.Literal() | exp.Neg() if node.is_int:
            return int(node.to_py())
        case exp.Add():
            parts = least(node.this), least(node.expression)
            return None if None in parts else sum(each or 0 for each in parts)
        case exp.Case():
            branches = [*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")]
            known = [least(each) for each in branches if each is not None and not isinstance(each, exp.Null)]
            return None if None in known else min((each or 0 for each in known), default=None)
        case exp.Length():
            return 0
        case exp.RowNumber():
            return 1
        case exp.Greatest():
            bounds = [least(each) for each in (node.this, *node.expressions)]
            return max((each for each in bounds if each is not None), default=None)
        case exp.Var():
            return 0 if node.meta.get(NOT_NEGATIVE) else None
    return 0 if node is not None and name_of(node) in PLACES else None


def write_substring(node: exp.Substring, to: Conversion) -> None:
    """Write it anew, unless both targets compute it as the dialect does. Raises NotTranslated."""
    start, length = node.args.get("start"), node.args.get("length")
    _check_start(start, to.dialect)
    starts = start is None or _at_least(start, 1)
    if starts and (length is None or _at_least(length, 0)):
        return
    text = _sql(node.this, to)
    place = "1" if start is None else _sql(start, to)
    begin = place
    if not starts:
        begin = f"CASE {_BEGINS[to.dialect].format(n=place, size=f'length({text})')} ELSE {place} END"
    if length is None:
        overwrite(node, f"substring({text}, {begin})")
        return
    count = _length(length, to)
    if not starts and to.dialect in COUNTS_BEFORE_THE_TEXT:  # what is before the text counts, but is nothing
        left = f"{place} + {count} - 1"
        count = f"CASE WHEN {place} < 1 THEN CASE WHEN {left} < 0 THEN 0 ELSE {left} END ELSE {count} END"
    overwrite(node, f"substring({text}, {begin}, {count})")


def _check_start(start: exp.Expr | None, dialect: str) -> None:
    known = least(start)
    constant = isinstance(start, exp.Literal | exp.Neg)
    if constant and known is not None and (known == 0 or (known < 0 and dialect in COUNTS_BEFORE_THE_TEXT)):
        raise NotTranslated("a substring from a place before the first is not translated; begin at 1 or later")
    if dialect == _NOT_DOCUMENTED and start is not None and (known is None or known < 1):
        raise NotTranslated(
            "a substring from a place that may be before the first is not translated; write GREATEST(n, 1) for the place, or "
            "RIGHT(x, n) for the end of a text"
        )


def write_end_of_text(node: exp.Left | exp.Right, to: Conversion) -> None:
    """Write `LEFT(x, n)` and `RIGHT(x, n)` anew, unless both targets compute it as the dialect does."""
    if _at_least(node.expression, 0):
        return
    text, count = _sql(node.this, to), _sql(node.expression, to)
    if to.dialect not in LIKE_POSTGRESQL:
        count = _length(node.expression, to)
    elif to.pipeline:  # all but so many characters of the other end
        count = f"CASE WHEN {count} < 0 THEN greatest(length({text}) + {count}, 0) ELSE {count} END"
    overwrite(node, f"{'left' if isinstance(node, exp.Left) else 'right'}({text}, {count})")


def _length(node: exp.Expr, to: Conversion) -> str:
    """A length, of which a negative one is what the dialect has for it."""
    count = _sql(node, to)
    if _at_least(node, 0):
        return count
    if to.dialect == "flink" and isinstance(node.parent, exp.Substring):
        return f"CASE WHEN {count} >= 0 THEN {count} END"
    if to.dialect in _REFUSES_LENGTHS:
        error = f"{to.either('error', 'raise_error')}({to.quoted('the length of a text is negative')})"
        return f"(CASE WHEN {count} < 0 THEN {error} ELSE {count} END)"
    return f"CASE WHEN {count} < 0 THEN 0 ELSE {count} END"


def _at_least(node: exp.Expr, number: int) -> bool:
    return (known := least(node)) is not None and known >= number


def _sql(node: exp.Expr, to: Conversion) -> str:
    written = to.written(node)
    return written if isinstance(node, exp.Column | exp.Literal | exp.Paren) else f"({written})"
