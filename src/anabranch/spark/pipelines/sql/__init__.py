"""Parses the SQL of pipelines; begin at `anabranch.spark.pipelines.sql.parse`."""

from importlib import import_module

from anabranch.errors.optional import optional

with optional("a pipeline", "spark"):
    import_module("sqlglot")
