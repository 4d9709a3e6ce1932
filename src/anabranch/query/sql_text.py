"""Names and values in the SQL of DuckDB."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def number_sql(number: float) -> str:
    """A number in SQL."""
    return f"{number!r}::DOUBLE" if isinstance(number, float) else str(number)
