"""Translates SQL of other systems into DuckDB's, for a query, or into that of a pipeline.

What sqlglot can't parse, such as `WINDOW TUMBLING (…)` or `TIMESTAMP BY`, is taken out of the text first
(`dialect_clauses`), in place, so that places in messages stay correct. What is left is parsed, checked against the tables
in `functions`, and written anew (`translate`). Whatever is not in a table is refused, at its line and character. Needs sqlglot, of the extra `query`.
"""
