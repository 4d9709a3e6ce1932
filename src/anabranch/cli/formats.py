"""The names of formats, for options."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """What a verb prints."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"
    arrow = "arrow"


class FileFormat(StrEnum):
    """What a file or pipe holds."""

    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"
    lines = "lines"
