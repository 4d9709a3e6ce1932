"""Syntax that the systems share but compute differently: division, parts of times, intervals, sums, nulls, LIKE, elements of
arrays. Casts and substrings have modules of their own.

A part that can be written so that its result stays the same is rewritten, any other is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlglot import exp

from anabranch.query.dialects.calls import LIKE_POSTGRESQL, Conversion, NotTranslated
from anabranch.query.dialects.casts import WHOLE_NUMBER, write_cast
from anabranch.query.dialects.kinds import INTEGERS, kind_of, overwrite, start_of
from anabranch.query.dialects.substrings import write_end_of_text, write_substring
from anabranch.query.dialects.texts import write_trim
from anabranch.query.dialects.times import UNITS, write_seconds_since_1970
from anabranch.query.dialects.written_calls import CALL_KINDS, write_call

_DIVIDES_INTEGERS: Final = frozenset({"flink", "ksqldb", "azure", "trino", "risingwave", "materialize"})
_DIVIDES_DECIMALS: Final = "trino"
"""Where a quotient of decimals (numbers with a point) has no more digits than its operands: 10 / 3.0 is 3.3."""
_FAILS_BY_ZERO: Final = frozenset({"azure", "bigquery", "snowflake", "risingwave", "materialize"})
"""Where a division by zero is an error for all numbers, as in Spark. It is infinite in DuckDB."""
_PARTS_OF_TIMES: Final = frozenset({"year", "quarter", "month", "day", "hour", "minute", "doy", "dayofyear"})
_NULL_IF_ANY_IS: Final = frozenset({"flink", "snowflake", "bigquery", "trino"})
"""Where GREATEST and LEAST are null if any argument is. In all other dialects, DuckDB and Spark they ignore nulls."""
_CONCATENATES_NULLS: Final = "ksqldb"
"""Where CONCAT takes a null for an empty text, as the parser knows of PostgreSQL and Azure."""
_TRUNCATED_TO: Final = frozenset({"year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"})
_ADDS_TEXTS: Final = frozenset({"azure", "ksqldb"})
"""Where + concatenates texts."""
_SUMS_64_BITS: Final = frozenset({"flink", "ksqldb", "azure", "bigquery", "trino"})
"""Where a sum of integers has 64 bits. In Snowflake every sum is a decimal; in the dialects like PostgreSQL, only a sum of
integers wider than 32 bits is."""
_ESCAPES: Final = frozenset({"bigquery", "risingwave", "materialize"})
"""Where a backslash in a pattern escapes what follows, as in Spark. It is a plain character in the others, as in DuckDB."""
_LIKE_UNDOCUMENTED: Final = "ksqldb"
_FROM_0: Final = frozenset({"bigquery", "snowflake"})
_FAILS_BEYOND_THE_END: Final = frozenset({"bigquery", "trino"})
"""Where an index beyond the end is an error. In all other dialects the element is null."""
_FROM_END: Final = "ksqldb"
"""Where negative indexes count from the end."""


def rewrite(tree: exp.Expr, to: Conversion) -> None:
    """Rewrite the parts so that the target computes the dialect's results. Raises NotTranslated, with its offset, for the first
    part for which that is not possible."""
    first: NotTranslated | None = None
    refused: set[int] = set()  # ids of the refused nodes' ancestors
    found = [(each, start_of(each)) for each in tree.walk() if type(each) in _WRITERS]
    for node, start in reversed(found):  # the inner ones first
        if id(node) in refused:
            continue
        try:
            _WRITERS[type(node)](node, to)
        except NotTranslated as exc:
            first, exc.start = exc, start
            around = node.parent
            while around is not None and id(around) not in refused:
                refused.add(id(around))
                around = around.parent
    if first is not None:
        raise first


# Times


def _write_extract(node: exp.Extract, to: Conversion) -> None:
    part, fractional = node.name.lower(), to.dialect in LIKE_POSTGRESQL
    if part == "epoch" and fractional:
        write_seconds_since_1970(node, to)
    elif part not in _PARTS_OF_TIMES and (part != "second" or to.pipeline != fractional):
        raise NotTranslated(
            f"{part} of a time is not the same in all systems, and is not translated; use one of "
            f"{', '.join(sorted(_PARTS_OF_TIMES))}"
        )


def _write_truncation(node: exp.TimestampTrunc, to: Conversion) -> None:
    unit = node.unit.name.lower() if node.unit is not None else ""
    unit = unit.removesuffix("s") if to.dialect in LIKE_POSTGRESQL else unit
    if node.args.get("zone") is not None:
        raise NotTranslated("truncating in a time zone is not translated; leave it out: times are in UTC")
    if unit not in _TRUNCATED_TO or (unit == "week" and to.dialect == "azure"):
        raise NotTranslated(f"truncating to {unit} is not translated; use one of {', '.join(sorted(_TRUNCATED_TO))}")
    node.set("unit", exp.Var(this=unit.upper()))


def _write_floor(node: exp.Floor, _to: Conversion) -> None:
    """`FLOOR(t TO DAY)`."""
    if (unit := node.args.get("to")) is None:
        return
    units = _TRUNCATED_TO - {"week"}  # weeks begin on Sunday in Flink
    if unit.name.lower() not in units:
        raise NotTranslated(f"FLOOR to {unit.name.lower()} is not translated; use one of {', '.join(sorted(units))}")
    node.replace(exp.TimestampTrunc(this=node.this, unit=exp.Var(this=unit.name.upper())))


def _write_ceil(node: exp.Ceil, _to: Conversion) -> None:
    if node.args.get("to") is not None:
        raise NotTranslated("CEIL to a unit is not translated; use FLOOR(… TO …)")


def _write_interval(node: exp.Interval, to: Conversion) -> None:
    """Write an interval as a whole number of one unit, which DuckDB and Spark both read. DuckDB reads several units too."""
    negative = isinstance(node.this, exp.Neg)
    number = node.this.this if negative else node.this
    whole = number is not None and number.is_string and bool(WHOLE_NUMBER.fullmatch(number.name))
    count = (-int(number.name) if negative else int(number.name)) if whole else 0  # DuckDB has no INTERVAL -'1' DAY
    if isinstance(node.parent, exp.Anonymous):
        if negative and whole:
            node.set("this", exp.Literal.string(str(count)))
        return
    several = not to.pipeline and to.dialect in LIKE_POSTGRESQL and node.unit is None
    if several and node.this is not None and node.this.is_string:
        return
    unit = node.unit.name.lower().removesuffix("s") if isinstance(node.unit, exp.Var) else None
    if not whole or unit not in UNITS:
        raise NotTranslated(
            "this interval is not translated; write whole numbers of one unit each: INTERVAL '1' DAY + INTERVAL '2' HOUR"
        )
    if unit == "quarter":  # Spark has none
        count *= 3
        node.set("unit", exp.Var(this="MONTH"))
    node.set("this", exp.Literal.string(str(count)))


# Numbers


def _write_division(node: exp.Div, to: Conversion) -> None:
    decimals, kind = to.dialect != _DIVIDES_DECIMALS, kind_of(node)
    if to.dialect in _DIVIDES_INTEGERS and kind != "double" and (kind != "decimal" or not decimals):
        raise NotTranslated(
            "a division of two integers has no fraction there, but has one here; write a / 2.0, or a / CAST(b AS DOUBLE)"
            if decimals
            else "a division of integers or decimals has no more digits than they have there, but has all here; write a / 2e0, "
            "or a / CAST(b AS DOUBLE)"
        )
    if to.pipeline or to.dialect not in _FAILS_BY_ZERO:
        return
    divisor = _as_text(node.expression, to)
    if isinstance(divisor, exp.Literal) and not divisor.is_string and float(divisor.name):
        return
    is_zero = exp.EQ(this=divisor.copy(), expression=exp.Literal.number(0))
    fails = exp.Anonymous(this="error", expressions=[exp.Literal.string("division by zero")])
    node.set("expression", exp.paren(exp.Case(ifs=[exp.If(this=is_zero, true=fails)], default=divisor.copy())))


def _write_sum(node: exp.Sum, to: Conversion) -> None:
    """Cast a sum of integers, with its FILTER and OVER, to 64 bits: DuckDB's has 128."""
    kind = kind_of(node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this)
    has_64_bits = to.dialect in _SUMS_64_BITS or (to.dialect in LIKE_POSTGRESQL and kind == "int32")
    if to.pipeline or kind not in INTEGERS or not has_64_bits:
        return
    whole: exp.Expr = node
    while isinstance(whole.parent, exp.Filter | exp.Window) and whole.arg_key == "this":
        whole = whole.parent
    cast = exp.Cast(to=exp.DataType(this=exp.DType.BIGINT))
    whole.replace(cast)
    cast.set("this", whole)


def _write_count_if(node: exp.CountIf, to: Conversion) -> None:
    """`count_if(x)` of DuckDB has 128 bits: write `count(CASE WHEN x THEN 1 END)`."""
    if to.pipeline:
        return
    distinct = isinstance(node.this, exp.Distinct)
    condition = node.this.expressions[0] if distinct else node.this
    counted = exp.Case(ifs=[exp.If(this=condition, true=exp.Literal.number(1))])
    node.replace(exp.Count(this=exp.Distinct(expressions=[counted]) if distinct else counted, big_int=True))


# Nulls and texts


def _write_extreme(node: exp.Greatest | exp.Least, to: Conversion) -> None:
    if to.dialect not in _NULL_IF_ANY_IS:
        return
    node.set("ignore_nulls", True)  # else only DuckDB's writer has nulls
    node.set("this", _as_text(node.this, to))
    node.set("expressions", [_as_text(each, to) for each in node.expressions])
    values = [each for each in (node.this, *node.expressions) if not isinstance(each, exp.Literal)]
    if not values:
        return
    found = exp.Case()
    node.replace(found)
    any_is_null = exp.or_(*(exp.Is(this=exp.paren(each.copy()), expression=exp.Null()) for each in values))
    found.set("ifs", [exp.If(this=any_is_null, true=exp.Null())])
    found.set("default", node)


def _write_addition(node: exp.Add, to: Conversion) -> None:
    if to.dialect in _ADDS_TEXTS and "text" in (kind_of(node.this), kind_of(node.expression)):
        node.replace(exp.DPipe(this=node.this, expression=node.expression, safe=True))


def _write_concatenation(node: exp.Concat, to: Conversion) -> None:
    if to.dialect == _CONCATENATES_NULLS:
        node.set("coalesce", True)


def _as_text(node: exp.Expr, to: Conversion) -> exp.Expr:
    """A part that is repeated in the result, as SQL text: the length of that is limited, however deep such parts are nested."""
    if isinstance(node, exp.Column | exp.Literal | exp.Var):
        return node
    return overwrite(node, f"({to.written(node)})")


def _write_like(node: exp.Like | exp.ILike, to: Conversion) -> None:
    """Rewrite LIKE so that a backslash escapes only if it does in the dialect. Raises NotTranslated for patterns that may match
    other texts in the dialect."""
    pattern, has_escape = node.args["expression"], isinstance(node.parent, exp.Escape)
    if to.dialect == "azure" and (not pattern.is_string or "[" in pattern.name):
        raise NotTranslated("LIKE with [ ] or without a constant pattern is not translated; use % and _")
    if has_escape or (pattern.is_string and "\\" not in pattern.name):
        return
    if to.dialect == _LIKE_UNDOCUMENTED and pattern.is_string:
        raise NotTranslated("LIKE with a backslash is not translated; name what escapes: LIKE '50!%' ESCAPE '!'")
    if to.pipeline == (to.dialect in _ESCAPES):
        return
    if not to.pipeline:
        node.replace(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")))
    elif pattern.is_string:
        node.set("expression", exp.Literal.string(pattern.name.replace("\\", "\\\\")))
    else:
        overwrite(pattern, rf"replace({to.written(pattern)}, '\\', '\\\\')")


# Elements of arrays and maps. Indexes count from 1 in DuckDB; those of BigQuery and Snowflake from 0.


def _write_element(node: exp.Bracket, to: Conversion) -> None:
    """The element in the target. A constant text is the key of a map or a struct, which all write alike."""
    if isinstance(node.this, exp.AnonymousAggFunc):
        return  # a quantile
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise NotTranslated("a part of an array is not translated; write one index")
    (at,) = node.expressions
    if at.is_string:
        return
    index = int(at.to_py()) if at.is_int else None
    offset = node.args.get("offset")
    first = int(offset) if offset is not None else 0 if to.dialect in _FROM_0 else 1
    if index is not None and index < first and not (to.dialect == _FROM_END and index < 0):
        raise NotTranslated(f"an element before the first is not translated; indexes count from {first}")
    if to.dialect == "snowflake" and index is None:  # it may also be the key of a map
        raise NotTranslated("an element at a computed index is not translated; write a constant")
    written = str(index + (1 - first)) if index is not None and index >= 0 else to.written(at)
    if index is None and first == 0:
        written = f"({written}) + 1"
    array = to.written(node.this)
    if not isinstance(node.this, exp.Column | exp.Var | exp.Dot | exp.Bracket | exp.Func):
        array = f"({array})"
    fails = to.dialect in _FAILS_BEYOND_THE_END and not node.args.get("safe")
    spark = f"{'element_at' if fails else 'try_element_at'}({array}, {written})"
    overwrite(node, spark if to.pipeline else f"{array}[{written}]")


_WRITERS: Final[dict[type[exp.Expr], Callable[[Any, Conversion], None]]] = {
    exp.Add: _write_addition,
    exp.Bracket: _write_element,
    exp.Cast: write_cast,
    exp.Ceil: _write_ceil,
    exp.Concat: _write_concatenation,
    exp.CountIf: _write_count_if,
    exp.Div: _write_division,
    exp.Extract: _write_extract,
    exp.Floor: _write_floor,
    exp.Interval: _write_interval,
    exp.Substring: write_substring,
    exp.Sum: _write_sum,
    exp.TimestampTrunc: _write_truncation,
    exp.Trim: write_trim,
    exp.TryCast: write_cast,
    **dict.fromkeys((exp.Greatest, exp.Least), _write_extreme),
    **dict.fromkeys((exp.Left, exp.Right), write_end_of_text),
    **dict.fromkeys((exp.Like, exp.ILike), _write_like),
    **dict.fromkeys(CALL_KINDS, write_call),
}
