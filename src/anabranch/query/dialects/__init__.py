"""Translates SQL of other systems: into DuckDB's for a query, into Spark's for a pipeline.

What sqlglot can't parse, such as `WINDOW TUMBLING (…)` or `TIMESTAMP BY`, is taken out of the text first
(`dialect_clauses`), in place, so that places in messages stay correct. The rest is parsed, checked against the tables
in `functions`, and rewritten (`translate`). A function that is in no table is refused, with its line and character. Needs
sqlglot, of the extra `query`.
"""
