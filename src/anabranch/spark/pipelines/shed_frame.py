"""Load shedding of a statement in Spark: its source's options, the rows that are kept, and what its plan may hold.

Without a priority the source sheds, which saves the conversion of the rows for Spark. A priority is SQL, so with one the
source yields all rows, and a filter right behind it sheds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions

from anabranch.errors import InvalidSql
from anabranch.spark.explain import explain
from anabranch.spark.pipelines.statement import Statement
from anabranch.spark.types import SHED_DRAW, SHED_RATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["KEPT_ROWS", "items_of", "refuse_unestimated", "shed_frame"]

KEPT_ROWS: Final = "anabranch_kept"  # Spark's name for the metric with the number of rows that were kept
_AGGREGATES: Final = ("Sum", "Count")
_REFUSED_NODES: Final = ("Join", "Distinct", "Deduplicate", "Window", "Union", "Generate")


def shed_frame(frame: DataFrame, statement: Statement) -> DataFrame:
    """The rows that are kept, each with its keep rate. Raises InvalidSql for a priority that Spark refuses."""
    if statement.options.shed_priority is not None:
        rate = functions.col(SHED_RATE.name)
        try:
            priority = functions.expr(f"CAST(({statement.options.shed_priority}\n) AS DOUBLE)")
            wanted = functions.least(functions.lit(1.0), functions.coalesce(priority, functions.lit(0.0)))
            frame = frame.withColumn(SHED_RATE.name, functions.greatest(rate, wanted))
        except PySparkException as exc:
            raise InvalidSql(f"shed_priority: {explain(exc)}", line=statement.line) from exc
        frame = frame.where(f"{SHED_DRAW.name} < {SHED_RATE.name}")
    return frame.observe(KEPT_ROWS, functions.count(functions.lit(1)).alias("rows"))


def refuse_unestimated(frame: DataFrame, statement: Statement) -> None:
    """Raises InvalidSql for parts of the plan whose results would be wrong with a part of the events."""
    for node in _nodes(frame._jdf.queryExecution().analyzed()):
        kind = str(node.getClass().getSimpleName())
        if kind.startswith(_REFUSED_NODES):
            raise InvalidSql(f"a query with shed can't have {kind.lower()}", line=statement.query_line)
        if kind == "Aggregate":
            for function in _aggregates(node.aggregateExpressions()):
                if function not in _AGGREGATES:
                    raise InvalidSql(
                        f"{function} can't be estimated from a part of the events: omit shed, or "
                        "use count, sum and avg",
                        line=statement.query_line,
                    )


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in items_of(node.children()):
        yield from _nodes(child)


def items_of(sequence: Any) -> Iterator[Any]:
    """The items of a sequence of Scala."""
    return map(sequence.apply, range(sequence.length()))


def _aggregates(expressions: Any) -> Iterator[str]:
    """The class names of the aggregate functions in a sequence of expressions."""
    for expression in items_of(expressions):
        if expression.getClass().getSimpleName() == "AggregateExpression":
            yield str(expression.aggregateFunction().getClass().getSimpleName())
        else:
            yield from _aggregates(expression.children())
