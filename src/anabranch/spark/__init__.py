"""Pipelines on Apache Spark: the session, streams as DataFrames, the `anabranch` data source, and pipeline SQL.

An optional extra: nothing outside this package imports pyspark. Spark itself loads `pyspark_anabranch`, a separate
and deliberately light top-level module, which comes back here only when a stream is read or written.
"""

from __future__ import annotations

from anabranch.spark.read import read
from anabranch.spark.session import session

__all__ = ["read", "session"]
