"""Casts: what a fraction becomes in an integer, the digits of times, lengths of texts, and types that dialects name differently."""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import sql_of
from anabranch.query.dialects.kinds import FRACTIONAL_SECONDS, INTEGERS, kind_of

_CUTS_OFF: Final = frozenset({"flink", "ksqldb", "azure"})
"""A cast to an integer cuts off the fraction. It rounds in the others, as in DuckDB; it cuts off in Spark."""
_TO_EVEN: Final = frozenset({"risingwave", "materialize"})
"""Of those that round: those that round a half to the even number, as DuckDB does. The others round it away from zero."""
_ROUNDS_TEXTS: Final = "snowflake"
"""Where a text with a fraction becomes the nearest integer, as in DuckDB. It is cut off in Flink, and no integer elsewhere."""
_SMALL_INTEGERS: Final = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.MEDIUMINT, exp.DType.INT})
_INTEGERS_HAVE_64_BITS: Final = frozenset({"bigquery", "snowflake"})
"""Where INT and SMALLINT are other names of the one type of integers. Snowflake's has 38 digits: more than 64 bits fail here."""
_TIMESTAMPS: Final = frozenset(
    (
        *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ),
        *(exp.DType.DATETIME, exp.DType.DATETIME2),
    )
)
_DIGITS: Final = 6
"""The digits that a second has here in its fraction."""
_ROUNDED_TO: Final = {0: ("second", "500 MILLISECOND"), 3: ("millisecond", "500 MICROSECOND")}
"""Of the digits that a cast to a time leaves: the unit, and half of it."""
WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
_WHOLE: Final = (exp.Floor, exp.Ceil, exp.CountIf, exp.Sign, exp.Boolean, exp.Predicate)


def cast_refusal(cast: exp.Cast, dialect: str, *, pipeline: bool) -> str | None:
    """What to say of a cast that is not translated."""
    return _time_message(cast, dialect, pipeline=pipeline) or _type_message(cast.to, dialect)


def write_cast(cast: exp.Cast, dialect: str, *, pipeline: bool) -> None:
    """The cast in the target, with the dialect's result."""
    if isinstance(cast, exp.TryCast):
        cast.set("safe", True)  # else Spark's writer takes one of ksqlDB, which is null if it fails, for a CAST
    _type_of_dialect(cast.to, dialect)
    if cast.to.this in _TIMESTAMPS or cast.to.this is exp.DType.TIME:
        _time_of_digits(cast, dialect, pipeline=pipeline)
    elif cast.to.this in exp.DataType.INTEGER_TYPES and not _is_whole(cast.this, dialect):
        _round_as(cast, dialect, pipeline=pipeline)


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


def _time_of_digits(cast: exp.Cast, dialect: str, *, pipeline: bool) -> None:
    """A cast to a type with a precision. DuckDB's own types with one are others than those of streams."""
    digits = _digits(cast, dialect)
    cast.to.set("expressions", [])
    if digits == _DIGITS:
        return
    unit, half = _ROUNDED_TO[digits]
    written = sql_of(cast, pipeline=pipeline) + (f" + INTERVAL {half}" if dialect == "trino" else "")
    cast.replace(exp.Var(this=f"date_trunc('{unit}', {written})"))


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


def _is_whole(node: exp.Expr, dialect: str) -> bool:
    """Whether it surely has no fraction."""
    match node:
        case exp.Paren() | exp.Neg():
            return _is_whole(node.this, dialect)
        case exp.Round():
            return node.args.get("decimals") is None
        case exp.Extract():
            return node.name.lower() != "second" or dialect not in FRACTIONAL_SECONDS
        case exp.Literal() if node.is_string:
            return bool(WHOLE_NUMBER.fullmatch(node.name))
    return kind_of(node) in INTEGERS or isinstance(node, _WHOLE)


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
    if kind_of(cast.this) == "text":
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
