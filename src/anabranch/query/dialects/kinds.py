"""The type of an expression, where it can be inferred. Types of columns are not known when a statement is translated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from sqlglot import exp

Kind = Literal["text", "int32", "int64", "decimal", "double"]
"""`int32` is an integer of up to 32 bits. A `decimal` may be a double if the type of one of its operands is unknown."""
KIND: Final = "anabranch_kind"
"""The key in `meta` for the kind of the SQL that replaced a call."""
_UP_TO_32_BITS: Final = exp.DataType.SIGNED_INTEGER_TYPES - {exp.DType.BIGINT, exp.DType.INT128, exp.DType.INT256}
_DOUBLES: Final = (exp.Avg, exp.Sqrt, exp.Exp, exp.Ln, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance)
_FRACTIONS: Final[tuple[Kind, ...]] = ("double", "decimal")
INTEGERS: Final[tuple[Kind, ...]] = ("int64", "int32")


def kind_of(node: exp.Expr | None) -> Kind | None:
    """The kind of an expression; None if it is not known."""
    match node:
        case exp.Literal():
            return "text" if node.is_string else _kind_of_number(node.name)
        case exp.Cast():
            return _kind_of_type(node.to.this)
        case exp.Paren() | exp.Neg() | exp.Abs() | exp.Nullif() | exp.Min() | exp.Max():
            return kind_of(node.this)
        case exp.Case():
            return _common([*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")])
        case exp.If():
            return _common([node.args["true"], node.args.get("false")])
        case exp.Coalesce():
            return _common([node.this, *node.expressions])
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
            return _common([node.this, node.expression])
        case exp.Div():
            return _fraction(_common([node.this, node.expression]))
        case exp.Sum() | exp.Round() | exp.Floor() | exp.Ceil():
            return _fraction(kind_of(node.this))
        case exp.Extract():
            return "double" if node.name.lower() == "epoch" else None
        case exp.Var():
            return node.meta.get(KIND)
        case exp.DPipe() | exp.Concat() | exp.Upper() | exp.Lower():
            return "text"
        case exp.Length():
            return "int32"
        case exp.Count() | exp.ApproxDistinct():
            return "int64"
    return "double" if isinstance(node, _DOUBLES) else None


def _kind_of_number(text: str) -> Kind:
    if text.isdecimal():
        return "int32" if int(text) < 1 << 31 else "int64"
    return "double" if "e" in text.lower() else "decimal"


def _kind_of_type(kind: exp.DType) -> Kind | None:
    if kind in exp.DataType.TEXT_TYPES:
        return "text"
    if kind in exp.DataType.INTEGER_TYPES:
        return "int32" if kind in _UP_TO_32_BITS else "int64"
    if kind in (exp.DType.DOUBLE, exp.DType.FLOAT):
        return "double"
    return "decimal" if kind is exp.DType.DECIMAL else None


def _common(parts: Iterable[exp.Expr | None]) -> Kind | None:
    """The kind of a value that is one of these or computed from them: double or decimal if one of them is."""
    kinds = {kind_of(each) for each in parts if each is not None and not isinstance(each, exp.Null)}
    if len(kinds) == 1:
        return kinds.pop()
    for fraction in _FRACTIONS:
        if fraction in kinds:
            return fraction
    return "int64" if kinds == {*INTEGERS} else None


def _fraction(kind: Kind | None) -> Kind | None:
    return kind if kind in _FRACTIONS else None


def overwrite(node: exp.Expr, sql: str) -> exp.Var:
    """Replace a part of a statement by SQL of the target, which keeps the kind of the part."""
    written = exp.Var(this=sql)
    written.meta[KIND] = kind_of(node)
    node.replace(written)
    return written


def start_of(node: exp.Expr) -> int:
    """Where a part of a statement begins in its text; 0 if that is not known."""
    return next((each.meta["start"] for each in node.walk() if "start" in each.meta), 0)
