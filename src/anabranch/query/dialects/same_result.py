"""What the systems write alike and compute differently: casts to integers, division, parts of times, texts.

A part that can be written so that its result stays the same is rewritten, any other is refused."""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from anabranch.query.dialects.aggregates import count_if, sum_of_integers
from anabranch.query.dialects.calls import NotTranslated, sql_of
from anabranch.query.dialects.elements import element_refusal, write_element
from anabranch.query.dialects.like import like_refusal, write_like
from anabranch.query.dialects.substrings import end_of_text, refusal, substring
from anabranch.query.dialects.texts import trim
from anabranch.query.dialects.times import seconds_since_1970
from anabranch.query.dialects.written_calls import CALL_KINDS, IS_TEXT, WITHOUT_FRACTION, write_call

_CUTS_OFF: Final = frozenset({"flink", "ksqldb", "azure"})
"""A cast to an integer cuts off the fraction. It rounds in the others, as in DuckDB; it cuts off in Spark."""
_TO_EVEN: Final = frozenset({"risingwave", "materialize"})
"""Of those that round: those that round a half to the even number, as DuckDB does. The others round it away from zero."""
_DIVIDES_INTEGERS: Final = frozenset({"flink", "ksqldb", "azure", "trino", "risingwave", "materialize"})
_DIVIDES_DECIMALS: Final = "trino"
"""Where a quotient of decimals, which numbers with a point are, has no more digits than they have: 10 / 3.0 is 3.3."""
_FRACTIONAL_SECONDS: Final = frozenset({"risingwave", "materialize"})
_ROUNDS_TEXTS: Final = "snowflake"
"""Where a text with a fraction becomes the nearest integer, as in DuckDB. It is cut off in Flink, and no integer elsewhere."""
_PARTS_OF_TIMES: Final = frozenset({"year", "quarter", "month", "day", "hour", "minute", "doy", "dayofyear"})
_NULL_IF_ANY_IS: Final = frozenset({"flink", "snowflake", "bigquery", "trino"})
"""Where GREATEST and LEAST of a null are null. They leave it out in the others, in DuckDB and in Spark."""
_CONCATENATES_NULLS: Final = "ksqldb"
"""Where CONCAT takes a null for an empty text, as the parser knows of PostgreSQL and Azure."""
_TRUNCATED_TO: Final = frozenset({"year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"})
_TIMESTAMPS: Final = frozenset(
    (
        *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ),
        *(exp.DType.DATETIME, exp.DType.DATETIME2),
    )
)
_SMALL_INTEGERS: Final = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.MEDIUMINT, exp.DType.INT})
_INTEGERS_HAVE_64_BITS: Final = frozenset({"bigquery", "snowflake"})
"""Where INT and SMALLINT are other names of the one type of integers. Snowflake's has 38 digits: more than 64 bits fail here."""
_ADDS_TEXTS: Final = frozenset({"azure", "ksqldb"})
"""Where + is || of texts."""
_DIGITS: Final = 6
"""The digits that a second has here in its fraction."""
_ROUNDED_TO: Final = {0: ("second", "500 MILLISECOND"), 3: ("millisecond", "500 MICROSECOND")}
"""Of the digits that a cast to a time leaves: the unit, and half of it."""
_INTERVAL_UNITS: Final = frozenset(
    ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
)
_SEVERAL_UNITS: Final = frozenset({"risingwave", "materialize"})
_PLURAL_UNITS: Final = frozenset({"risingwave", "materialize"})
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
_WHOLE: Final = (
    exp.Count,
    exp.CountIf,
    exp.ApproxDistinct,
    exp.Length,
    exp.Extract,
    exp.Sign,
    exp.Boolean,
    exp.Predicate,
)
_FRACTIONAL: Final = (exp.Avg, exp.Sqrt, exp.Exp, exp.Ln, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance)
_FRACTIONAL_TYPES: Final = frozenset({exp.DType.DOUBLE, exp.DType.FLOAT, exp.DType.DECIMAL})


def different(tree: exp.Expr, dialect: str, *, pipeline: bool) -> tuple[exp.Expr, str] | None:
    """The first part that would have another result, and what to write instead; None if there is none."""
    for node in tree.walk():
        if (message := _message(node, dialect, pipeline=pipeline)) is not None:
            return node, message
    return None


def _message(node: exp.Expr, dialect: str, *, pipeline: bool) -> str | None:
    match node:
        case exp.Cast():
            return _time_message(node, dialect, pipeline=pipeline) or _type_message(node.to, dialect)
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
    if _is_fractional(node.this, decimals=decimals) or _is_fractional(node.expression, decimals=decimals):
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


def _type_message(to: exp.DataType, dialect: str) -> str | None:
    """Of types that the systems cut off, fill up or complete in other ways than DuckDB and Spark."""
    sizes = [each.name.lower() for each in to.expressions]
    match to.this:
        case exp.DType.CHAR | exp.DType.NCHAR | exp.DType.BPCHAR:
            sized = True
        case kind if kind in exp.DataType.TEXT_TYPES:
            sized = bool(sizes) and sizes[0] not in ("max", "2147483647")
        case exp.DType.DECIMAL if not sizes:
            return "a DECIMAL without precision and scale is not the same in all systems; write both: DECIMAL(18, 3)"
        case _:
            return None
    if not sized:
        return None
    whole = {"azure": "nvarchar(max)", "flink": "STRING", "bigquery": "STRING"}.get(dialect, "VARCHAR")
    size = sizes[0] if sizes and sizes[0].isdigit() else "1"
    return f"a cast to texts of a length is not translated; write SUBSTRING(CAST(x AS {whole}), 1, {size})"


def _digits(cast: exp.Cast, dialect: str) -> int:
    """How many digits a cast leaves of the fraction of a second; all that a constant text has are enough."""
    given = [each.name for each in cast.to.expressions]
    day = cast.to.this is exp.DType.TIME
    digits = int(given[0]) if given else 3 if dialect == "trino" else 0 if day and dialect == "flink" else _DIGITS
    if cast.this.is_string and len(cast.this.name.partition(".")[2].rstrip("Z")) <= digits:
        return _DIGITS
    return min(digits, _DIGITS)


def _time_message(cast: exp.Cast, dialect: str, *, pipeline: bool) -> str | None:
    """Of a cast to times with fewer digits than here. Flink cuts the others off, Trino rounds them up from a half on; where the
    others round a half to is not documented."""
    kind = cast.to.this
    if kind in (exp.DType.ROWVERSION, exp.DType.SMALLDATETIME):
        return f"a cast to {'timestamp' if kind is exp.DType.ROWVERSION else 'smalldatetime'} is not translated; write datetime"
    if kind is exp.DType.TIME and (pipeline or _digits(cast, dialect) < _DIGITS):
        return "a cast to a time of a day is not translated; write EXTRACT(HOUR FROM x), and MINUTE"
    if kind not in _TIMESTAMPS or (digits := _digits(cast, dialect)) == _DIGITS:
        return None
    if dialect in ("flink", "trino") and digits in _ROUNDED_TO:
        return None
    name = "CAST(x AS datetime)" if dialect == "azure" else "CAST(x AS TIMESTAMP)"
    nearest = "a precision of 0 or 3" if dialect in ("flink", "trino") else f"{name}, which keeps microseconds"
    return f"a cast to times with {digits} digits of a second is not translated; write {nearest}"


def _interval_message(node: exp.Interval, *, several: bool) -> str | None:
    """Of what DuckDB and Spark read alike: a whole number of one unit. DuckDB also reads several, as PostgreSQL does."""
    number = node.this.this if isinstance(node.this, exp.Neg) else node.this
    unit = node.unit.name.lower().removesuffix("s") if isinstance(node.unit, exp.Var) else None
    if number is not None and number.is_string and _WHOLE_NUMBER.fullmatch(number.name) and unit in _INTERVAL_UNITS:
        return None
    if several and node.unit is None and node.this is not None and node.this.is_string:
        return None
    return "this interval is not translated; write whole numbers of one unit each: INTERVAL '1' DAY + INTERVAL '2' HOUR"


def _extract_message(node: exp.Extract, dialect: str, *, pipeline: bool) -> str | None:
    part = node.name.lower()
    if part == "epoch" and dialect in _FRACTIONAL_SECONDS:
        return None
    if part in _PARTS_OF_TIMES or (part == "second" and pipeline == (dialect in _FRACTIONAL_SECONDS)):
        return None
    return (
        f"{part} of a time is not the same in all systems, and is not translated; use one of "
        f"{', '.join(sorted(_PARTS_OF_TIMES))}"
    )


def _is_fractional(node: exp.Expr, *, decimals: bool) -> bool:
    """Whether it surely is no integer; without `decimals`, whether it surely is a double."""
    match node:
        case exp.Paren() | exp.Neg() | exp.Abs():
            return _is_fractional(node.this, decimals=decimals)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return any(_is_fractional(each, decimals=decimals) for each in (node.this, node.expression))
        case exp.Literal():
            return not node.is_string and not node.name.isdigit() and (decimals or "e" in node.name.lower())
        case exp.Cast():
            return node.to.this in _FRACTIONAL_TYPES and (decimals or node.to.this is not exp.DType.DECIMAL)
        case exp.Extract():
            return node.name.lower() == "epoch"
        case exp.Coalesce() | exp.Sum() | exp.Min() | exp.Max() | exp.Round() | exp.Floor() | exp.Ceil():
            return _is_fractional(node.this, decimals=decimals)
    return isinstance(node, _FRACTIONAL)


_REWRITTEN: Final[tuple[type[exp.Expr], ...]] = (
    *(exp.Cast, exp.Trim, exp.Extract, exp.Interval, exp.Substring, exp.TimestampTrunc, exp.Left, exp.Right),
    *(exp.CountIf, exp.Sum, exp.Greatest, exp.Least, exp.Concat, exp.Like, exp.ILike, exp.Bracket, exp.Add),
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
            if isinstance(node, exp.TryCast):
                node.set("safe", True)  # else Spark's writer takes one of ksqlDB, which is null if it fails, for a CAST
            _type_of_dialect(node.to, dialect)
            if node.to.this in _TIMESTAMPS or node.to.this is exp.DType.TIME:
                _time_of_digits(node, dialect, pipeline=pipeline)
            elif node.to.this in exp.DataType.INTEGER_TYPES and not _is_whole(node.this):
                _round_as(node, dialect, pipeline=pipeline)
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
            if dialect in _ADDS_TEXTS and (_is_text(node.this) or _is_text(node.expression)):
                node.replace(exp.DPipe(this=node.this, expression=node.expression, safe=True))
        case exp.Bracket():
            write_element(node, dialect, pipeline=pipeline)
        case exp.Greatest() | exp.Least():
            if dialect in _NULL_IF_ANY_IS:
                _null_if_any_is(node)
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


def _time_of_digits(cast: exp.Cast, dialect: str, *, pipeline: bool) -> None:
    """A cast to a type with a precision. DuckDB's own types with one are others than those of streams."""
    digits = _digits(cast, dialect)
    cast.to.set("expressions", [])
    if digits == _DIGITS:
        return
    unit, half = _ROUNDED_TO[digits]
    written = sql_of(cast, pipeline=pipeline) + (f" + INTERVAL {half}" if dialect == "trino" else "")
    cast.replace(exp.Var(this=f"date_trunc('{unit}', {written})"))


def _sign_into_text(node: exp.Interval) -> None:
    """DuckDB has no `INTERVAL -'1' DAY`."""
    if isinstance(node.this, exp.Neg) and node.this.this.is_string and _WHOLE_NUMBER.fullmatch(node.this.this.name):
        node.set("this", exp.Literal.string(str(-int(node.this.this.name))))


def _null_if_any_is(node: exp.Greatest | exp.Least) -> None:
    values = [each for each in (node.this, *node.expressions) if not isinstance(each, exp.Literal)]
    if not values:
        return
    node.set("ignore_nulls", True)  # else only DuckDB's writer has nulls
    found = exp.Case()
    node.replace(found)
    any_is_null = exp.or_(*(exp.Is(this=exp.paren(each.copy()), expression=exp.Null()) for each in values))
    found.set("ifs", [exp.If(this=any_is_null, true=exp.Null())])
    found.set("default", node)


def _quarters_as_months(node: exp.Interval) -> None:
    """Spark has no quarters."""
    if isinstance(node.unit, exp.Var) and node.unit.name.lower() in ("quarter", "quarters") and node.this.is_string:
        node.set("this", exp.Literal.string(str(3 * int(node.this.name))))
        node.set("unit", exp.Var(this="MONTH"))


def _type_of_dialect(to: exp.DataType, dialect: str) -> None:
    """The type that a dialect means by a name that others have for a smaller one."""
    if to.this in _SMALL_INTEGERS and dialect in _INTEGERS_HAVE_64_BITS:
        to.set("this", exp.DType.BIGINT)
    elif to.this is exp.DType.FLOAT and dialect in ("azure", "snowflake"):
        to.set("this", exp.DType.DOUBLE)
    elif dialect == "azure" and to.this is exp.DType.BIT:
        to.set("this", exp.DType.BOOLEAN)
    elif dialect == "azure" and to.this in exp.DataType.TEXT_TYPES:
        to.set("expressions", [])


def _is_whole(node: exp.Expr) -> bool:
    """Whether it surely has no fraction."""
    match node:
        case exp.Paren() | exp.Neg():
            return _is_whole(node.this)
        case exp.Floor() | exp.Ceil():
            return True
        case exp.Round():
            return node.args.get("decimals") is None
        case exp.Literal():
            return bool(_WHOLE_NUMBER.fullmatch(node.name))
        case exp.Cast():
            return node.to.this in exp.DataType.INTEGER_TYPES
        case exp.Var():
            return bool(node.meta.get(WITHOUT_FRACTION))
    return isinstance(node, _WHOLE)


def _is_text(node: exp.Expr) -> bool:
    """Whether it surely is a text."""
    match node:
        case exp.Paren():
            return _is_text(node.this)
        case exp.Literal():
            return node.is_string
        case exp.Cast():
            return node.to.this in exp.DataType.TEXT_TYPES
        case exp.Var():
            return bool(node.meta.get(IS_TEXT))
    return isinstance(node, exp.DPipe | exp.Concat | exp.Upper | exp.Lower)


def _cut_off(text: str, *, pipeline: bool) -> str:
    """A text without its fraction, if it is a number."""
    return f"regexp_replace({text}, '^( *[+-]?[0-9]+)[.][0-9]* *$', '{'$1' if pipeline else chr(92) + '1'}')"


def _whole_text(value: str, dialect: str) -> str:
    """SQL of DuckDB, whose cast rounds a text with a fraction: the text, or one that no cast takes if it is no integer."""
    text = f"CAST({value} AS VARCHAR)"
    if dialect == "flink":
        text = _cut_off(text, pipeline=False)
    return (
        f"CASE WHEN regexp_full_match({text}, ' *[+-]?[0-9]+ *') THEN {text} ELSE {text} || ' is no whole number' END"
    )


def _of_text(value: str, dialect: str, *, pipeline: bool, safe: bool) -> str | None:
    """What to cast instead of a text, which may have a fraction; None if it is cast as the dialect does."""
    if not pipeline:
        return _whole_text(value, dialect) if dialect != _ROUNDS_TEXTS else None
    text = f"CAST({value} AS STRING)"  # Spark's cast takes no fractions
    if dialect == "flink":
        return _cut_off(text, pipeline=True)
    return f"round({'TRY_CAST' if safe else 'CAST'}({text} AS DECIMAL(38, 18)))" if dialect == _ROUNDS_TEXTS else None


def _round_as(cast: exp.Cast, dialect: str, *, pipeline: bool) -> None:
    """A cast of a number with a fraction, for which the dialect's rule and that of DuckDB or Spark differ. What the type is
    is known when the query runs only."""
    value = sql_of(cast.this, pipeline=pipeline)
    kept = cast.copy()
    kept.set("this", exp.Var(this=value))
    of_text = _of_text(value, dialect, pipeline=pipeline, safe=isinstance(cast, exp.TryCast))
    if _is_text(cast.this):
        if of_text is not None:
            cast.set("this", exp.Var(this=of_text))
        return
    cases: list[tuple[str, str]] = []
    if not pipeline and dialect in _CUTS_OFF:
        cases = [
            ("IN ('FLOAT', 'DOUBLE')", f"trunc(TRY_CAST({value} AS DOUBLE))"),
            ("LIKE 'DECIMAL%'", f"split_part(CAST({value} AS VARCHAR), '.', 1)"),
        ]
    elif not pipeline and dialect not in _TO_EVEN:
        cases = [("IN ('FLOAT', 'DOUBLE')", f"round(TRY_CAST({value} AS DOUBLE))")]
    elif pipeline and dialect not in _CUTS_OFF:
        function = "bround" if dialect in _TO_EVEN else "round"
        cases = [
            ("IN ('float', 'double')", f"{function}(TRY_CAST({value} AS DOUBLE))"),
            ("LIKE 'decimal%'", f"round(TRY_CAST({value} AS DECIMAL(38, 18)))"),
        ]
    if of_text is not None:
        cases.append((f"= '{'string' if pipeline else 'VARCHAR'}'", of_text))
    if not cases:
        return
    found = exp.Case(default=kept)
    for types, rounded in cases:
        whole = kept.copy()
        whole.set("this", exp.Var(this=rounded))
        found = found.when(exp.Var(this=f"typeof({value}) {types}"), whole, copy=False)
    cast.replace(found)
