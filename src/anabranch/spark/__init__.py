"""Pipelines on Apache Spark: the session, streams as DataFrames, the `anabranch` data source, and pipeline SQL.

An optional extra: nothing outside this package imports pyspark. Spark itself loads `pyspark_anabranch`, a separate
and deliberately light top-level module, which imports this package only when a stream is read or written.

`read` and `resource` are loaded on first use: Spark's daemon imports this package before it has configured Arrow to start no
threads.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.spark.session.session import session

if TYPE_CHECKING:
    from anabranch.spark.pipelines.declared_functions.calls import resource
    from anabranch.spark.source.frame import read

__all__ = ["read", "resource", "session"]


def __getattr__(name: str) -> Any:
    if name == "read":
        return import_module("anabranch.spark.source.frame").read
    if name == "resource":
        return import_module("anabranch.spark.pipelines.declared_functions.calls").resource
    raise AttributeError(f"module 'anabranch.spark' has no attribute '{name}'")
