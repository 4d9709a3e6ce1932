"""Aggregates that are integers of 64 bits in the other systems, and of 128 bits in DuckDB, which Arrow has as decimals."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.written_calls import WITHOUT_FRACTION

_SUMS_64_BITS: Final = frozenset({"flink", "ksqldb", "azure", "bigquery", "trino"})
"""Where a sum of integers is one of 64 bits."""
_SUMS_32_BITS: Final = frozenset({"risingwave", "materialize"})
"""Where it is so of integers of up to 32 bits only; other sums are decimals there, as are all in Snowflake."""
_UP_TO_32_BITS: Final = exp.DataType.SIGNED_INTEGER_TYPES - {exp.DType.BIGINT, exp.DType.INT128, exp.DType.INT256}


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
    if dialect not in _SUMS_64_BITS and (dialect not in _SUMS_32_BITS or not _is_integer(summed, small=True)):
        return
    if not _is_integer(summed, small=False):
        return
    whole: exp.Expr = node
    while isinstance(whole.parent, exp.Filter | exp.Window) and whole.arg_key == "this":
        whole = whole.parent
    cast = exp.Cast(to=exp.DataType(this=exp.DType.BIGINT))
    whole.replace(cast)
    cast.set("this", whole)


def _is_integer(node: exp.Expr, *, small: bool) -> bool:
    """Whether its type surely is that of an integer, for `small` one of up to 32 bits."""
    parts: list[exp.Expr | None]
    match node:
        case exp.Literal():
            return not node.is_string and node.name.isdecimal() and (not small or int(node.name) < 1 << 31)
        case exp.Cast():
            return node.to.this in (_UP_TO_32_BITS if small else exp.DataType.INTEGER_TYPES)
        case exp.Case():
            parts = [*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")]
        case exp.If():
            parts = [node.args["true"], node.args.get("false")]
        case exp.Coalesce():
            parts = [node.this, *node.expressions]
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
            parts = [node.this, node.expression]
        case exp.Paren() | exp.Neg() | exp.Abs() | exp.Nullif() | exp.Min() | exp.Max():
            parts = [node.this]
        case exp.Var():
            return not small and bool(node.meta.get(WITHOUT_FRACTION))
        case _:
            return isinstance(node, exp.Length) or (not small and isinstance(node, exp.Count | exp.ApproxDistinct))
    known = [each for each in parts if each is not None and not isinstance(each, exp.Null)]
    return bool(known) and all(_is_integer(each, small=small) for each in known)
