"""Gives a session an aggregate function that Spark has, but keeps to itself: that which makes Bloom filters.

Spark uses it to filter joins and for `DataFrame.stat.bloomFilter`, and has it in a registry of its own (`FunctionRegistry.internal`).
The function's builder is taken from there, so it is Spark's own code that runs. Nothing else makes filters in SQL nearly as fast:
see `./dev bench queries_sketches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from anabranch.errors import InvalidSql
from anabranch.sketches.bloom import AGGREGATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["provide_functions"]


def provide_functions(spark: SparkSession, sql: str) -> None:
    """Make the function known to the session, if this SQL uses it. Raises InvalidSql for a Spark without it."""
    if AGGREGATE not in sql:
        return
    session: Any = spark
    try:
        analysis = session._jvm.org.apache.spark.sql.catalyst.analysis
        registry = getattr(analysis, "FunctionRegistry$").__getattr__("MODULE$").internal()
        builder = registry.lookupFunctionBuilder(
            session._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(AGGREGATE)
        )
        own = session._jsparkSession.sessionState().functionRegistry()
        own.createOrReplaceTempFunction(AGGREGATE, builder.get(), "built-in")
    except Py4JError as exc:
        raise InvalidSql(f"bloom_sketch_agg needs Spark 4.3; this is {spark.version}") from exc
