"""Functions of other systems' SQL have the results of those systems in Spark, where pipelines run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.query.dialects.translate import DialectOptions, translate
from anabranch.spark.pipelines.sql.parse import parse
from tests.unit.query.dialect_function_cases import APPROXIMATE, CASES, Case, typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def results(spark: SparkSession, case: Case) -> list[Any]:
    """The results of a case in Spark, in the order of its rows."""
    text = f"SELECT {case.statement} FROM s"
    text = text.replace(" FROM s", " INTO r FROM s") if case.dialect == "azure" else f"CREATE TABLE r AS {text}"
    (statement,) = parse(translate(text, case.dialect, "pipeline", DialectOptions("iot")))
    (source,) = statement.sources
    rows = [(number, *row) for number, row in enumerate(case.inputs)]
    spark.createDataFrame(rows, f"i BIGINT, {case.columns}").createOrReplaceTempView(source)
    return [_in_utc(row["v"]) for row in sorted(spark.sql(statement.query).collect(), key=lambda row: row[0] or 0)]


def _in_utc(value: Any) -> Any:
    """Times of Spark are in the zone of this process, and don't say so."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def test_a_function_has_the_results_of_its_system(spark: SparkSession) -> None:
    """One test for all cases: what differs is shown together."""
    found = [(str(case), typed(results(spark, case)), typed(case.results)) for case in CASES]
    assert [each for each in found if each[1] != each[2]] == []


def test_an_approximate_quantile_is_near(spark: SparkSession) -> None:
    for case in APPROXIMATE:
        assert abs(results(spark, case)[0] - case.result) <= 10, case
