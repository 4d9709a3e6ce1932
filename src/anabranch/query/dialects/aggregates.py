"""Aggregates that are integers of 64 bits in the other systems, and of 128 bits in DuckDB, which Arrow has as decimals."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.kinds import INTEGERS, kind_of

_SUMS_64_BITS: Final = frozenset({"flink", "ksqldb", "azure", "bigquery", "trino"})
"""Where a sum of integers is one of 64 bits."""
_SUMS_32_BITS: Final = frozenset({"risingwave", "materialize"})
"""Where it is so of integers of up to 32 bits only; other sums are decimals there, as are all in Snowflake."""


def count_if(node: exp.CountIf) -> None:
    """`count_if(x)` of DuckDB has 128 bits: write `count(CASE WHEN x THEN 1 END)`."""
    distinct = isinstance(node.this, exp.Distinct)
    condition = node.this.expressions[0] if distinct else node.this
    counted = exp.Case(ifs=[exp.If(this=condition, true=exp.Literal.number(1))])
    node.replace(exp.Count(this=exp.Distinct(expressions=[counted]) if distinct else counted, big_int=True))


def sum_of_integers(node: exp.Sum, dialect: str) -> None:
    """A sum of what surely are integers as one of 64 bits, with its FILTER and its OVER. The types of columns are not known
    here."""
    summed = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
    kind = kind_of(summed)
    if kind not in INTEGERS or not (dialect in _SUMS_64_BITS or (dialect in _SUMS_32_BITS and kind == "int32")):
        return
    whole: exp.Expr = node
    while isinstance(whole.parent, exp.Filter | exp.Window) and whole.arg_key == "this":
        whole = whole.parent
    cast = exp.Cast(to=exp.DataType(this=exp.DType.BIGINT))
    whole.replace(cast)
    cast.set("this", whole)
