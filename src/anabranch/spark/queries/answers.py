"""Answers to questions about SQL of queries (`anabranch.deployments.questions`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.catalog.state.query_question import QueryQuestion
from anabranch.deployments.hosting import kept_versions
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.spark.explain import explain
from anabranch.spark.pipelines import record
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.queries.committed_state import committed_state
from anabranch.spark.queries.upgrade import plan_upgrade
from anabranch.spark.queries.validate import validate
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["answer_of"]


def answer_of(store: Store, spark: SparkSession, question: QueryQuestion) -> Mapping[str, Any]:
    """The members of the question that are its answer. Raises AnabranchError."""
    try:
        if question.kind == "validate":
            return {
                "validated": validate(
                    store, question.text, parameters=question.parameters, files=question.files, spark=spark
                )
            }
        assert question.name is not None
        if question.wanted is not None:
            return {"state": committed_state(store, spark, question.name, question.wanted)}
        after = plan(question.text, question.parameters, question.files)
        row = record.get(store.catalog, question.name)
        return {"plan": plan_upgrade(row, kept_versions(store.catalog, question.name), after)}
    except AnabranchError:
        raise
    except Exception as exc:
        raise InvalidArgument(explain(exc)) from exc
