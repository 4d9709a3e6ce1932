"""Elements of arrays and maps by index. Indexes count from 1 in DuckDB; those of BigQuery and Snowflake from 0."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import sql_of

_FROM_0: Final = frozenset({"bigquery", "snowflake"})
_FAILS: Final = frozenset({"bigquery", "trino"})
"""Where an index behind the end is an error. It is null in the others."""
_FROM_END: Final = "ksqldb"
"""Where negative indexes count from the end."""


def element_refusal(node: exp.Bracket, dialect: str) -> str | None:
    """What to say of an element that is not translated."""
    if isinstance(node.this, exp.AnonymousAggFunc):
        return None  # a quantile
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        return "a part of an array is not translated; write one index"
    index, first = _index(node), _first(node, dialect)
    if index is not None and index < first and not (dialect == _FROM_END and index < 0):
        return f"an element before the first is not translated; indexes count from {first}"
    if dialect == "snowflake" and index is None and not node.expressions[0].is_string:
        return "an element at a computed index is not translated; write a constant"  # which may also be a key
    return None


def write_element(node: exp.Bracket, dialect: str, *, pipeline: bool) -> None:
    """The element in the target. A constant text is the key of a map or a struct, which all write alike."""
    (at,) = node.expressions
    if isinstance(node.this, exp.AnonymousAggFunc) or at.is_string:
        return
    index, first = _index(node), _first(node, dialect)
    written = str(index + (1 - first)) if index is not None and index >= 0 else sql_of(at, pipeline=pipeline)
    if index is None and first == 0:
        written = f"({written}) + 1"
    array = sql_of(node.this, pipeline=pipeline)
    if not isinstance(node.this, exp.Column | exp.Var | exp.Dot | exp.Bracket | exp.Func):
        array = f"({array})"
    fails = dialect in _FAILS and not node.args.get("safe")
    spark = f"{'element_at' if fails else 'try_element_at'}({array}, {written})"
    node.replace(exp.Var(this=spark if pipeline else f"{array}[{written}]"))


def _first(node: exp.Bracket, dialect: str) -> int:
    """The index of the first element."""
    given = node.args.get("offset")
    return int(given) if given is not None else 0 if dialect in _FROM_0 else 1


def _index(node: exp.Bracket) -> int | None:
    """The index, if it is a constant."""
    at = node.expressions[0]
    return int(at.to_py()) if at.is_int else None
