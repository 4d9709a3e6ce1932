"""Quantiles. Functions that are approximate in the dialect are approximate here too; all others are exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import NotTranslated, WriterRow, WrittenCall, refused_in


def _share(call: WrittenCall, at: int) -> str:
    """The constant from 0 to 1, both inclusive. Raises NotTranslated for anything else."""
    node = call.arguments[at]
    if not isinstance(node, exp.Literal) or node.is_string or not 0 <= float(node.name) <= 1:
        raise NotTranslated(f"{call.name} needs a constant from 0 to 1")
    return str(node.name)


def _approximate(call: WrittenCall) -> str:
    """`APPROX_PERCENTILE(x, 0.95)`."""
    call.expect(2, example=f"{call.name}(x, 0.95)")
    return _approx_quantile(call, _share(call, 1))


def _approx_quantile(call: WrittenCall, share: str) -> str:
    value = f"CAST({call.sql(0)} AS DOUBLE)" if call.dialect == "snowflake" else call.sql(0)  # a FLOAT there
    return call.either(f"approx_quantile({value}, {share})", f"approx_percentile({value}, {share})")


def _exact(call: WrittenCall) -> str:
    """`PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY x)`, of the share and the value."""
    call.expect(2, example=f"{call.name}(0.95) WITHIN GROUP (ORDER BY x)")
    value = f"CAST({call.sql(1)} AS DOUBLE)"
    return call.either(f"quantile_cont({value}, {_share(call, 0)})", f"percentile({value}, {_share(call, 0)})")


def _percentile(call: WrittenCall) -> str:
    """`PERCENTILE(x, 0.95)`."""
    call.expect(2, example=f"{call.name}(x, 0.95)")
    return _exact(replace(call, arguments=call.arguments[::-1]))


def _median(call: WrittenCall) -> str:
    call.expect(1, example=f"{call.name}(x)")
    return _exact(replace(call, arguments=[exp.Literal.number("0.5"), *call.arguments]))


def _of_parts(call: WrittenCall) -> str:
    """`APPROX_QUANTILES(x, 100)[OFFSET(95)]`, of the value, the number of parts, and the offset."""
    call.expect(3, example=f"{call.name}(x, 100)[OFFSET(95)]")
    parts = call.constant(1, least=1, most=10_000, what="a number of parts")
    at = call.constant(2, least=0, most=parts, what="an offset")
    return _approx_quantile(call, repr(at / parts))


def is_aggregate_over(node: exp.Window, dialect: str) -> bool:
    """Whether it is `PERCENTILE_CONT(0.95) OVER (ORDER BY x)`, an aggregate in Azure's SQL."""
    return dialect == "azure" and isinstance(node.this, exp.AnonymousAggFunc)


def arguments_around(node: exp.AnonymousAggFunc, dialect: str) -> tuple[exp.Expr, list[exp.Expr]] | None:
    """The expression around a quantile that holds its other arguments, with all arguments; None if there is none."""
    parent = node.parent
    if isinstance(parent, exp.WithinGroup):
        return parent, [*node.expressions, _ordered(node, parent.expression)]
    if isinstance(parent, exp.Window) and is_aggregate_over(parent, dialect):
        if any(parent.args.get(each) for each in ("partition_by", "spec", "alias")):
            raise NotTranslated(f"{node.name} OVER (…) is translated with ORDER BY alone; leave the rest out")
        return parent, [*node.expressions, _ordered(node, parent.args.get("order"))]
    if isinstance(parent, exp.Bracket) and node.name.upper() == "APPROX_QUANTILES":
        if len(parent.expressions) != 1 or parent.args.get("offset") != 0:
            raise NotTranslated(f"write one offset, counted from 0: {node.name}(x, 100)[OFFSET(95)]")
        return parent, [*node.expressions, *parent.expressions]
    return None


def _ordered(node: exp.AnonymousAggFunc, order: exp.Expr | None) -> exp.Expr:
    if not isinstance(order, exp.Order) or len(order.expressions) != 1 or order.expressions[0].args.get("desc"):
        raise NotTranslated(f"{node.name} needs ORDER BY of one value, ascending; write 1 - p for the other direction")
    return order.expressions[0].this  # type: ignore[no-any-return]


QUANTILES: Final[tuple[WriterRow, ...]] = (
    ("trino snowflake", "APPROX_PERCENTILE", _approximate),
    ("bigquery", "APPROX_QUANTILES", _of_parts),
    ("snowflake risingwave azure", "PERCENTILE_CONT", _exact),
    ("snowflake", "MEDIAN", _median),
    refused_in("bigquery", "PERCENTILE_CONT", instead="APPROX_QUANTILES(x, 100)[OFFSET(50)] in a GROUP BY"),
    ("flink", "PERCENTILE", _percentile),
)
