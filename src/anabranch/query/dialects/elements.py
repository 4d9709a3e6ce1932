"""Elements of arrays and maps by index. Indexes count from 1 in DuckDB; those of BigQuery and Snowflake from 0."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import Conversion, NotTranslated
from anabranch.query.dialects.kinds import overwrite

_FROM_0: Final = frozenset({"bigquery", "snowflake"})
_FAILS: Final = frozenset({"bigquery", "trino"})
"""Where an index behind the end is an error. It is null in the others."""
_FROM_END: Final = "ksqldb"
"""Where negative indexes count from the end."""


def write_element(node: exp.Bracket, to: Conversion) -> None:
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
    if to.dialect == "snowflake" and index is None:  # which may also be a key
        raise NotTranslated("an element at a computed index is not translated; write a constant")
    written = str(index + (1 - first)) if index is not None and index >= 0 else to.written(at)
    if index is None and first == 0:
        written = f"({written}) + 1"
    array = to.written(node.this)
    if not isinstance(node.this, exp.Column | exp.Var | exp.Dot | exp.Bracket | exp.Func):
        array = f"({array})"
    fails = to.dialect in _FAILS and not node.args.get("safe")
    spark = f"{'element_at' if fails else 'try_element_at'}({array}, {written})"
    overwrite(node, spark if to.pipeline else f"{array}[{written}]")
