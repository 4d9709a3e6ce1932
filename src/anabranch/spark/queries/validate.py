"""Checks a query with Spark without running it: over empty streams like those that it names, in a store of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.catalog.state.query_question import DeclaredParameter, ValidatedQuery, ValidatedStatement
from anabranch.catalog.state.query_version import QueryFile
from anabranch.core.sql_parameters import declarations
from anabranch.errors import NotFound
from anabranch.model.names import StreamName
from anabranch.runtime.ids import token
from anabranch.spark.pipelines import record
from anabranch.spark.pipelines.declared_functions.install import install
from anabranch.spark.pipelines.plan import Step, functions_of, plan
from anabranch.spark.pipelines.prepare import RunOptions, prepare
from anabranch.spark.pipelines.session import session_with_log_file
from anabranch.spark.pipelines.targets import check_sources
from anabranch.store import Store, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["validate"]


def validate(
    store: Store,
    text: str,
    *,
    parameters: Mapping[str, str] | None = None,
    files: Sequence[QueryFile] = (),
    spark: SparkSession | None = None,
) -> ValidatedQuery:
    """Check a query as deploying and running it would, and change nothing. Returns what it would write, in the order of
    the statements. The code of its functions is not run, and need not be on this machine. Raises InvalidSql with the
    line for a missing stream, an unknown column and anything else that is not valid or that Spark can't run on
    streams."""
    steps = plan(text, parameters, files)
    check_sources(store, steps)
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-validate-") as folder,
        connect(Path(folder) / "store", create=True) as scratch,
    ):
        for step in steps:
            _imitate(store, scratch, step)
        now, holder = scratch.runtime.clock.now(), record.this_process(token(scratch.runtime.ids))
        row = record.claim(scratch.catalog, "validate", text, [step.output for step in steps], holder, now=now)
        spark = spark or session_with_log_file(Path(folder), name="anabranch validate")
        install(spark, functions_of(steps), None)
        prepare(spark, scratch, row, steps, RunOptions())
        statements = tuple(_validated(scratch, step) for step in steps)
    declared = declarations(text)
    return ValidatedQuery(
        statements, tuple(DeclaredParameter(each.name, each.kind, each.default, each.line) for each in declared)
    )


def _imitate(store: Store, scratch: Store, step: Step) -> None:
    """Create an empty copy of each existing stream that the statement reads or writes."""
    statement = step.statement
    others = (*statement.results, *(each.target for each in statement.feedback), statement.late_target)
    for name in {*statement.sources.values(), *statement.tables.values(), *others}:
        with suppress(NotFound):
            schema = store.streams.get(name).schema
            scratch.scopes.create(name.scope, exist_ok=True)
            if not scratch.streams.exists(name):
                given = {} if schema.raw else {"schema": schema.columns, "key": schema.key, "time": schema.time}
                scratch.streams.create(name, **given)


def _validated(store: Store, step: Step) -> ValidatedStatement:
    schema = store.streams.get(StreamName.parse(step.target)).schema
    statement = step.statement
    late = (
        str(statement.late_target) if statement.options.late and store.streams.exists(statement.late_target) else None
    )
    return ValidatedStatement(
        target=step.target,
        line=statement.line,
        columns={field.name: str(field.type) for field in schema.columns},
        sources=_names(statement.sources),
        tables=_names(statement.tables),
        sides=tuple(str(side.target) for side in statement.sides),
        feedback=tuple(str(each.target) for each in statement.feedback),
        late=late,
    )


def _names(views: Mapping[str, StreamName]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(str, views.values())))
