"""What the systems write alike and compute differently: division, parts of times, intervals, nulls. Casts, substrings, LIKE,
aggregates and elements of arrays have modules of their own.

A part that can be written so that its result stays the same is rewritten, any other is refused."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.aggregates import count_if, sum_of_integers
from anabranch.query.dialects.calls import NotTranslated, sql_of
from anabranch.query.dialects.casts import WHOLE_NUMBER, cast_refusal, write_cast
from anabranch.query.dialects.elements import element_refusal, write_element
from anabranch.query.dialects.kinds import FRACTIONAL_SECONDS, kind_of
from anabranch.query.dialects.like import like_refusal, write_like
from anabranch.query.dialects.substrings import end_of_text, refusal, substring
from anabranch.query.dialects.texts import trim
from anabranch.query.dialects.times import seconds_since_1970
from anabranch.query.dialects.written_calls import CALL_KINDS, write_call

_DIVIDES_INTEGERS: Final = frozenset({"flink", "ksqldb", "azure", "trino", "risingwave", "materialize"})
_DIVIDES_DECIMALS: Final = "trino"
"""Where a quotient of decimals, which numbers with a point are, has no more digits than they have: 10 / 3.0 is 3.3."""
_FAILS_BY_ZERO: Final = frozenset({"azure", "bigquery", "snowflake", "risingwave", "materialize"})
"""Where a division by zero is an error for all numbers, as in Spark. It is infinite in DuckDB."""
_PARTS_OF_TIMES: Final = frozenset({"year", "quarter", "month", "day", "hour", "minute", "doy", "dayofyear"})
_NULL_IF_ANY_IS: Final = frozenset({"flink", "snowflake", "bigquery", "trino"})
"""Where GREATEST and LEAST of a null are null. They leave it out in the others, in DuckDB and in Spark."""
_CONCATENATES_NULLS: Final = "ksqldb"
"""Where CONCAT takes a null for an empty text, as the parser knows of PostgreSQL and Azure."""
_TRUNCATED_TO: Final = frozenset({"year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"})
_ADDS_TEXTS: Final = frozenset({"azure", "ksqldb"})
"""Where + is || of texts."""
_INTERVAL_UNITS: Final = frozenset(
    ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
)
_SEVERAL_UNITS: Final = frozenset({"risingwave", "materialize"})
_PLURAL_UNITS: Final = frozenset({"risingwave", "materialize"})


def different(tree: exp.Expr, dialect: str, *, pipeline: bool) -> tuple[exp.Expr, str] | None:
    """The first part that would have another result, and what to write instead; None if there is none."""
    for node in tree.walk():
        if (message := _message(node, dialect, pipeline=pipeline)) is not None:
            return node, message
    return None


def _message(node: exp.Expr, dialect: str, *, pipeline: bool) -> str | None:
    match node:
        case exp.Cast():
            return cast_refusal(node, dialect, pipeline=pipeline)
        case exp.Div() if dialect in _DIVIDES_INTEGERS:
            return _division_message(node, dialect)
        case exp.Extract():
            return _extract_message(node, dialect, pipeline=pipeline)
        case exp.TimestampTrunc():
            unit = _truncated_to(node, dialect)
            if node.args.get("zone") is not None:
                return "truncating in a time zone is not translated; leave it out: times are in UTC"
            if unit not in _TRUNCATED_TO or (unit == "week" and dialect == "azure"):
                return f"truncating to {unit} is not translated; use one of {', '.join(sorted(_TRUNCATED_TO))}"
        case exp.Interval() if not isinstance(node.parent, exp.Anonymous):
            return _interval_message(node, several=not pipeline and dialect in _SEVERAL_UNITS)
        case exp.Floor() if (to := node.args.get("to")) is not None and to.name.lower() not in _TRUNCATED_TO - {"week"}:
            # Weeks begin on Sunday in Flink.
            return f"FLOOR to {to.name.lower()} is not translated; use one of {', '.join(sorted(_TRUNCATED_TO - {'week'}))}"
        case exp.Ceil() if node.args.get("to") is not None:
            return "CEIL to a unit is not translated; use FLOOR(… TO …)"
        case exp.Like() | exp.ILike():
            return like_refusal(node, dialect)
        case exp.Substring():
            return refusal(node, dialect)
        case exp.Bracket():
            return element_refusal(node, dialect)
    return None


def _division_message(node: exp.Div, dialect: str) -> str | None:
    decimals = dialect != _DIVIDES_DECIMALS
    kind = kind_of(node)
    if kind == "double" or (kind == "decimal" and decimals):
        return None
    if decimals:
        return "a division of two integers has no fraction there, but has one here; write a / 2.0, or a / CAST(b AS DOUBLE)"
    return (
        "a division of integers or decimals has no more digits than they have there, but has all here; write a / 2e0, or "
        "a / CAST(b AS DOUBLE)"
    )


def _truncated_to(node: exp.TimestampTrunc, dialect: str) -> str:
    unit = node.unit.name.lower() if node.unit is not None else ""
    return unit.removesuffix("s") if dialect in _PLURAL_UNITS else unit


def _interval_message(node: exp.Interval, *, several: bool) -> str | None:
    """Of what DuckDB and Spark read alike: a whole number of one unit. DuckDB also reads several, as PostgreSQL does."""
    number = node.this.this if isinstance(node.this, exp.Neg) else node.this
    unit = node.unit.name.lower().removesuffix("s") if isinstance(node.unit, exp.Var) else None
    if number is not None and number.is_string and WHOLE_NUMBER.fullmatch(number.name) and unit in _INTERVAL_UNITS:
        return None
    if several and node.unit is None and node.this is not None and node.this.is_string:
        return None
    return "this interval is not translated; write whole numbers of one unit each: INTERVAL '1' DAY + INTERVAL '2' HOUR"


def _extract_message(node: exp.Extract, dialect: str, *, pipeline: bool) -> str | None:
    part = node.name.lower()
    if part == "epoch" and dialect in FRACTIONAL_SECONDS:
        return None
    if part in _PARTS_OF_TIMES or (part == "second" and pipeline == (dialect in FRACTIONAL_SECONDS)):
        return None
    return (
        f"{part} of a time is not the same in all systems, and is not translated; use one of "
        f"{', '.join(sorted(_PARTS_OF_TIMES))}"
    )


_REWRITTEN: Final[tuple[type[exp.Expr], ...]] = (
    *(exp.Cast, exp.Trim, exp.Extract, exp.Interval, exp.Substring, exp.TimestampTrunc, exp.Left, exp.Right),
    *(exp.CountIf, exp.Sum, exp.Greatest, exp.Least, exp.Concat, exp.Like, exp.ILike, exp.Bracket, exp.Add, exp.Div),
    *CALL_KINDS,
)


def rewrite(tree: exp.Expr, dialect: str, *, pipeline: bool) -> None:
    """Write casts, calls, truncations and LIKE so that they have the dialect's result. Raises NotTranslated, with its `node`."""
    for node in reversed(list(tree.find_all(*_REWRITTEN))):  # the inner ones first
        try:
            _rewrite_node(node, dialect, pipeline=pipeline)
        except NotTranslated as refused:
            refused.node = node
            raise
    for floor in list(tree.find_all(exp.Floor)):
        if (unit := floor.args.get("to")) is not None:
            floor.replace(exp.TimestampTrunc(this=floor.this, unit=exp.Var(this=unit.name.upper())))


def _rewrite_node(node: exp.Expr, dialect: str, *, pipeline: bool) -> None:
    match node:
        case exp.Cast():
            write_cast(node, dialect, pipeline=pipeline)
        case exp.Trim():
            node.replace(exp.Var(this=trim(node, dialect, pipeline=pipeline)))
        case exp.Extract():
            if node.name.lower() == "epoch":
                node.replace(exp.Var(this=seconds_since_1970(node, dialect, pipeline=pipeline)))
        case exp.Interval():
            _sign_into_text(node)
            _quarters_as_months(node)
        case exp.TimestampTrunc():
            node.set("unit", exp.Var(this=_truncated_to(node, dialect).upper()))
        case exp.Substring():
            if (written := substring(node, dialect, pipeline=pipeline)) is not None:
                node.replace(exp.Var(this=written))
        case exp.Left() | exp.Right():
            if (written := end_of_text(node, dialect, pipeline=pipeline)) is not None:
                node.replace(exp.Var(this=written))
        case exp.Like() | exp.ILike():
            write_like(node, dialect, pipeline=pipeline)
        case exp.Add():
            if dialect in _ADDS_TEXTS and "text" in (kind_of(node.this), kind_of(node.expression)):
                node.replace(exp.DPipe(this=node.this, expression=node.expression, safe=True))
        case exp.Div():
            if not pipeline and dialect in _FAILS_BY_ZERO:
                _fail_by_zero(node)
        case exp.Bracket():
            write_element(node, dialect, pipeline=pipeline)
        case exp.Greatest() | exp.Least():
            if dialect in _NULL_IF_ANY_IS:
                _null_if_any_is(node, pipeline=pipeline)
        case exp.Concat():
            if dialect == _CONCATENATES_NULLS:
                node.set("coalesce", True)
        case exp.CountIf():
            if not pipeline:
                count_if(node)
        case exp.Sum():
            if not pipeline:
                sum_of_integers(node, dialect)
        case _:
            write_call(node, dialect, pipeline=pipeline)


def _fail_by_zero(node: exp.Div) -> None:
    divisor = _as_text(node.expression, pipeline=False)
    if isinstance(divisor, exp.Literal) and not divisor.is_string and float(divisor.name):
        return
    is_zero = exp.EQ(this=divisor.copy(), expression=exp.Literal.number(0))
    fails = exp.Anonymous(this="error", expressions=[exp.Literal.string("division by zero")])
    node.set("expression", exp.paren(exp.Case(ifs=[exp.If(this=is_zero, true=fails)], default=divisor.copy())))


def _sign_into_text(node: exp.Interval) -> None:
    """DuckDB has no `INTERVAL -'1' DAY`."""
    if isinstance(node.this, exp.Neg) and node.this.this.is_string and WHOLE_NUMBER.fullmatch(node.this.this.name):
        node.set("this", exp.Literal.string(str(-int(node.this.this.name))))


def _null_if_any_is(node: exp.Greatest | exp.Least, *, pipeline: bool) -> None:
    node.set("ignore_nulls", True)  # else only DuckDB's writer has nulls
    node.set("this", _as_text(node.this, pipeline=pipeline))
    node.set("expressions", [_as_text(each, pipeline=pipeline) for each in node.expressions])
    values = [each for each in (node.this, *node.expressions) if not isinstance(each, exp.Literal)]
    if not values:
        return
    found = exp.Case()
    node.replace(found)
    any_is_null = exp.or_(*(exp.Is(this=exp.paren(each.copy()), expression=exp.Null()) for each in values))
    found.set("ifs", [exp.If(this=any_is_null, true=exp.Null())])
    found.set("default", node)


def _as_text(node: exp.Expr, *, pipeline: bool) -> exp.Expr:
    """A part that is written several times. As a text its length is limited, however deep such parts are nested."""
    if isinstance(node, exp.Column | exp.Literal | exp.Var):
        return node
    return exp.Var(this=f"({sql_of(node, pipeline=pipeline)})")


def _quarters_as_months(node: exp.Interval) -> None:
    """Spark has no quarters."""
    if isinstance(node.unit, exp.Var) and node.unit.name.lower() in ("quarter", "quarters") and node.this.is_string:
        node.set("this", exp.Literal.string(str(3 * int(node.this.name))))
        node.set("unit", exp.Var(this="MONTH"))
