"""Maps line numbers in Spark's errors to the lines of the statement's file."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from anabranch.errors import InvalidSql
from anabranch.spark.explain import explain
from anabranch.spark.pipelines.functions.declared import without_spark_names
from anabranch.spark.pipelines.statement import Statement

__all__ = ["invalid_sql", "padded"]


def padded(statement: Statement, query: str) -> str:
    """Spark counts lines from the query's start. Leading line breaks make these the line numbers of the file."""
    return "\n" * (statement.query_line - 1) + query


def invalid_sql(exc: PySparkException, line: int) -> InvalidSql:
    """The error that Spark reports, with the line that its message names, else this one."""
    found = re.search(r"\(?line (\d+),? pos", str(exc))
    return InvalidSql(without_spark_names(explain(exc)), line=int(found[1]) if found else line)
