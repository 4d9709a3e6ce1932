"""Casts: rounding to integers, the precision of times, lengths of texts, and types that dialects name differently."""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import LIKE_POSTGRESQL, Conversion, NotTranslated
from anabranch.query.dialects.kinds import INTEGERS, kind_of, overwrite

_CUTS_OFF: Final = frozenset({"flink", "ksqldb", "azure"})
"""Dialects where a cast to an integer truncates, as in Spark. It rounds in all others, as in DuckDB: half to even in DuckDB and
the dialects like PostgreSQL, half away from zero in the rest."""
_ROUNDS_TEXTS: Final = "snowflake"
"""Where a cast of a text such as '1.5' to an integer rounds, as in DuckDB. It truncates in Flink; elsewhere
such a text is no valid integer."""
_SMALL_INTEGERS: Final = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.MEDIUMINT, exp.DType.INT})
_INTEGERS_HAVE_64_BITS: Final = frozenset({"bigquery", "snowflake"})
"""Where INT and SMALLINT are aliases of the only integer type. Snowflake's has 38 digits; here, more than 64 bits fail."""
_TIMESTAMPS: Final = frozenset(
    (
        *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ),
        *(exp.DType.DATETIME, exp.DType.DATETIME2),
    )
)
_DIGITS: Final = 6
"""Fractional digits of a second in DuckDB and Spark."""
_ROUNDED_TO: Final = {0: ("second", "500 MILLISECOND"), 3: ("millisecond", "500 MICROSECOND")}
"""By the precision of a cast to a time: the unit to truncate to, and half of that unit."""
WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
_WHOLE: Final = (exp.Floor, exp.Ceil, exp.CountIf, exp.Sign, exp.Boolean, exp.Predicate)


def write_cast(cast: exp.Cast, to: Conversion) -> None:
    """The cast in the target, with the dialect's result. Raises NotTranslated."""
    _check_time(cast, to)
    _check_type(cast.to, to.dialect)
    if isinstance(cast, exp.TryCast):
        cast.set("safe", True)  # else Spark's writer takes one of ksqlDB, which is null if it fails, for a CAST
    _type_of_dialect(cast.to, to.dialect)
    if cast.to.this in _TIMESTAMPS or cast.to.this is exp.DType.TIME:
        _time_of_digits(cast, to)
    elif cast.to.this in exp.DataType.INTEGER_TYPES and not _is_whole(cast.this, to.dialect):
        _round_as(cast, to)


def _check_type(kind: exp.DataType, dialect: str) -> None:
    """Refuse types that the dialects truncate, pad or default differently from DuckDB and Spark. Raises NotTranslated."""
    sizes = [each.name.lower() for each in kind.expressions]
    if kind.this is exp.DType.DECIMAL and not sizes:
        raise NotTranslated(
            "a DECIMAL without precision and scale is not the same in all systems; write both: DECIMAL(18, 3)"
        )
    sized = kind.this in exp.DataType.TEXT_TYPES and sizes and sizes[0] not in ("max", "2147483647")
    if sized or kind.this in (exp.DType.CHAR, exp.DType.NCHAR, exp.DType.BPCHAR):
        whole = {"azure": "nvarchar(max)", "flink": "STRING", "bigquery": "STRING"}.get(dialect, "VARCHAR")
        size = sizes[0] if sizes and sizes[0].isdigit() else "1"
        raise NotTranslated(
            f"a cast to texts of a length is not translated; write SUBSTRING(CAST(x AS {whole}), 1, {size})"
        )


def _digits(cast: exp.Cast, dialect: str) -> int:
    """The fractional digits of a second that a cast keeps; all, if it keeps every digit of a constant text."""
    given = [each.name for each in cast.to.expressions]
    day = cast.to.this is exp.DType.TIME
    digits = int(given[0]) if given else 3 if dialect == "trino" else 0 if day and dialect == "flink" else _DIGITS
    if cast.this.is_string and len(cast.this.name.partition(".")[2].rstrip("Z")) <= digits:
        return _DIGITS
    return min(digits, _DIGITS)


def _check_time(cast: exp.Cast, to: Conversion) -> None:
    """Refuse casts to times with fewer fractional digits than DuckDB and Spark keep, unless the rounding is known: Flink
    truncates, Trino rounds half up; for all other dialects it is not documented. Raises NotTranslated."""
    kind, known = cast.to.this, to.dialect in ("flink", "trino")
    if kind in (exp.DType.ROWVERSION, exp.DType.SMALLDATETIME):
        name = "timestamp" if kind is exp.DType.ROWVERSION else "smalldatetime"
        raise NotTranslated(f"a cast to {name} is not translated; write datetime")
    if kind not in _TIMESTAMPS and kind is not exp.DType.TIME:
        return
    digits = _digits(cast, to.dialect)
    if kind is exp.DType.TIME and (to.pipeline or digits < _DIGITS):
        raise NotTranslated("a cast to a time of a day is not translated; write EXTRACT(HOUR FROM x), and MINUTE")
    if kind in _TIMESTAMPS and digits != _DIGITS and not (known and digits in _ROUNDED_TO):
        name = "CAST(x AS datetime)" if to.dialect == "azure" else "CAST(x AS TIMESTAMP)"
        nearest = "a precision of 0 or 3" if known else f"{name}, which keeps microseconds"
        raise NotTranslated(f"a cast to times with {digits} digits of a second is not translated; write {nearest}")


def _time_of_digits(cast: exp.Cast, to: Conversion) -> None:
    """Write a cast to a type with a precision as a truncation: DuckDB's types with a precision are not the types of streams."""
    digits = _digits(cast, to.dialect)
    cast.to.set("expressions", [])
    if digits != _DIGITS:
        unit, half = _ROUNDED_TO[digits]
        more = f" + INTERVAL {half}" if to.dialect == "trino" else ""
        overwrite(cast, f"date_trunc('{unit}', {to.written(cast)}{more})")


def _type_of_dialect(to: exp.DataType, dialect: str) -> None:
    """Replace the type by the target's for what the dialect means by this name."""
    if to.this in _SMALL_INTEGERS and dialect in _INTEGERS_HAVE_64_BITS:
        to.set("this", exp.DType.BIGINT)
    elif to.this is exp.DType.FLOAT and dialect in ("azure", "snowflake"):
        to.set("this", exp.DType.DOUBLE)
    elif dialect == "azure" and to.this is exp.DType.BIT:
        to.set("this", exp.DType.BOOLEAN)
    elif dialect == "azure" and to.this in exp.DataType.TEXT_TYPES:
        to.set("expressions", [])


def _is_whole(node: exp.Expr, dialect: str) -> bool:
    """Whether the value is known to have no fraction."""
    match node:
        case exp.Paren() | exp.Neg():
            return _is_whole(node.this, dialect)
        case exp.Round():
            return node.args.get("decimals") is None
        case exp.Extract():
            return node.name.lower() != "second" or dialect not in LIKE_POSTGRESQL
        case exp.Literal() if node.is_string:
            return bool(WHOLE_NUMBER.fullmatch(node.name))
    return kind_of(node) in INTEGERS or isinstance(node, _WHOLE)


def _of_text(value: str, to: Conversion, *, safe: bool) -> str | None:
    """The SQL to cast in place of a text that may have a fraction; None if the target casts the text as the dialect does."""
    text = f"CAST({value} AS {to.either('VARCHAR', 'STRING')})"
    if to.dialect == _ROUNDS_TEXTS:  # as DuckDB does; Spark's cast takes no fractions
        return f"round({'TRY_CAST' if safe else 'CAST'}({text} AS DECIMAL(38, 18)))" if to.pipeline else None
    if to.dialect == "flink":  # without the fraction, if it is a number
        text = f"regexp_replace({text}, '^( *[+-]?[0-9]+)[.][0-9]* *$', '{to.either(chr(92) + '1', '$1')}')"
    if to.pipeline:
        return text if to.dialect == "flink" else None
    # DuckDB's cast would round a text with a fraction: such a text is changed so that the cast fails.
    is_whole = f"regexp_full_match({text}, ' *[+-]?[0-9]+ *')"
    return f"CASE WHEN {is_whole} THEN {text} ELSE {text} || ' is no whole number' END"


def _round_as(cast: exp.Cast, to: Conversion) -> None:
    """Rewrite a cast to an integer where the dialect and the target round differently. The type of the value is known only
    when the query runs, so the SQL branches on it."""
    value = to.written(cast.this)
    kept = cast.copy()
    kept.set("this", exp.Var(this=value))
    of_text = _of_text(value, to, safe=isinstance(cast, exp.TryCast))
    if kind_of(cast.this) == "text":
        if of_text is not None:
            cast.set("this", exp.Var(this=of_text))
        return
    cases: list[tuple[str, str]] = []
    cuts_off, to_even = to.dialect in _CUTS_OFF, to.dialect in LIKE_POSTGRESQL
    if not to.pipeline and cuts_off:
        cases = [
            ("IN ('FLOAT', 'DOUBLE')", f"trunc(TRY_CAST({value} AS DOUBLE))"),
            ("LIKE 'DECIMAL%'", f"split_part(CAST({value} AS VARCHAR), '.', 1)"),
        ]
    elif not to.pipeline and not to_even:
        cases = [("IN ('FLOAT', 'DOUBLE')", f"round(TRY_CAST({value} AS DOUBLE))")]
    elif to.pipeline and not cuts_off:
        cases = [
            ("IN ('float', 'double')", f"{'bround' if to_even else 'round'}(TRY_CAST({value} AS DOUBLE))"),
            ("LIKE 'decimal%'", f"round(TRY_CAST({value} AS DECIMAL(38, 18)))"),
        ]
    if of_text is not None:
        cases.append((f"= '{to.either('VARCHAR', 'string')}'", of_text))
    if not cases:
        return
    found = exp.Case(default=kept)
    for types, rounded in cases:
        whole = kept.copy()
        whole.set("this", exp.Var(this=rounded))
        found = found.when(exp.Var(this=f"typeof({value}) {types}"), whole, copy=False)
    cast.replace(found)
