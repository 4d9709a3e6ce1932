"""Declared functions in a Spark session: registered with their code, and put behind a query as its handler."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf, pandas_udf
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructType

from anabranch.deployments.files import kind_of_file, unpacked_wheels
from anabranch.errors import InvalidSql
from anabranch.spark.explain import explain
from anabranch.spark.pipelines.declared_functions import calls
from anabranch.spark.pipelines.declared_functions.declared import DeclaredFunction, wasm_signature, without_spark_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["handled", "install"]

_RAW: Final = "_raw"
_lock = threading.Lock()
# By application: the archives, and the functions that have their code by Spark's name, with their modules if they are handlers.
_installed: dict[str, dict[str, bytes]] = {}


def install(spark: SparkSession, functions: Sequence[DeclaredFunction], files: Mapping[str, bytes] | None) -> None:
    """Make functions known to the session, with their code from these files, by name. With None they are only good for
    checking statements, and replace no function that exists with its code. Raises InvalidSql, MissingExtra."""
    with _lock:
        known = _installed.setdefault(spark.sparkContext.applicationId, {})
        for archive in {each.archive for each in functions if each.archive is not None} - known.keys():
            if files is not None:
                _add_archive(spark, archive, files)
                known[archive] = b""
        for function in functions:
            if function.spark_name in known:
                continue
            if not function.of_batches:
                _register(spark, function, files or {})
            if files is not None:
                known[function.spark_name] = _module(function, files) if function.of_batches else b""


def _register(spark: SparkSession, function: DeclaredFunction, files: Mapping[str, bytes]) -> None:
    names = ", ".join(name for name, _ in function.arguments)
    takes = ", ".join(f"{name} {kind}" for name, kind in function.arguments)
    raw = function.spark_name + _RAW
    try:
        spark.udf.register(raw, _udf(function, files))
        # Arguments get the declared types, and may be named.
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {function.spark_name}({takes}) RETURNS {function.result} "
            f"RETURN {raw}({names})"
        )
    except PySparkException as exc:
        raise InvalidSql(without_spark_names(explain(exc)), line=function.line) from exc


def handled(frame: DataFrame, function: DeclaredFunction) -> DataFrame:
    """The rows that a function makes of the micro-batches of a frame. Raises InvalidSql for a column that it takes and the frame
    has not."""
    for name, _ in function.arguments:
        if name.lower() not in (column.lower() for column in frame.columns):
            raise InvalidSql(
                f"'{function.name}' takes the column '{name}', but the query has only: {', '.join(frame.columns)}",
                line=function.line,
            )
    try:
        wanted = frame.select(*(sql.col(f"`{name}`").cast(kind).alias(name) for name, kind in function.arguments))
        schema = _ddl(function.columns)
        call = _batch_call(frame.sparkSession, function, _arrow(wanted.schema), _arrow(schema))
        # One partition, so that the function is called once for a micro-batch, with its rows in the order of the sources.
        return wanted.coalesce(1).mapInArrow(call, schema)
    except PySparkException as exc:
        raise InvalidSql(explain(exc), line=function.line) from exc


def _batch_call(spark: SparkSession, function: DeclaredFunction, given: pa.Schema, schema: pa.Schema) -> Any:
    if function.language != "WASM":
        return calls.batch_call(_target(function), schema, given, arrow=function.language == "ARROW")
    code = _installed.get(spark.sparkContext.applicationId, {}).get(function.spark_name, b"")
    return calls.wasm_batch_call(code, wasm_signature(function), schema)


def _udf(function: DeclaredFunction, files: Mapping[str, bytes]) -> Any:
    schema = _ddl([*function.arguments, ("result", str(function.result))])
    kind = schema["result"].dataType
    over_pandas: Any = pandas_udf  # by the type hints of the called function, which its overloads can't express
    over_arrow: Any = arrow_udf
    if function.language == "PYTHON":
        return over_pandas(calls.pandas_call(_target(function)), kind)
    if function.language == "ARROW":
        return over_arrow(calls.arrow_call(_target(function), to_arrow_type(kind, timezone="UTC")), kind)
    return over_arrow(calls.wasm_call(function.name, _module(function, files), wasm_signature(function)), kind)


def _module(function: DeclaredFunction, files: Mapping[str, bytes]) -> bytes:
    """The WebAssembly module that it is in; empty if it is in Python, or for checking statements only."""
    return files.get(f"{function.module}.wasm", b"") if function.language == "WASM" else b""


def _target(function: DeclaredFunction) -> calls.FunctionTarget:
    return calls.FunctionTarget(function.name, function.archive, function.module, function.function)


def _ddl(columns: Sequence[tuple[str, str]]) -> StructType:
    made = StructType.fromDDL(", ".join(f"`{name}` {kind}" for name, kind in columns))
    assert isinstance(made, StructType), "it is one of several columns"
    return made


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _add_archive(spark: SparkSession, archive: str, files: Mapping[str, bytes]) -> None:
    """Have Spark unpack the code on each machine."""
    # Other machines fetch the archive from this folder, which is removed with the session.
    path = Path(SparkFiles.getRootDirectory()) / f"{archive}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in unpacked_wheels(files).items():
            made.writestr(f"{calls.PYTHON}/{name}", content)
        for name, content in files.items():
            if kind_of_file(name) == "resource":
                made.writestr(f"{calls.RESOURCES}/{name}", content)
    spark.sparkContext.addArchive(f"{path}#{archive}")
