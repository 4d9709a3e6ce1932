"""The enumerations of formats that options take."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The output formats of a verb."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"
    arrow = "arrow"
    parquet = "parquet"


class FileFormat(StrEnum):
    """The input formats of files and pipes."""

    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"
    lines = "lines"


class TimeUnit(StrEnum):
    """The unit of integer times, counted since 1970."""

    s = "s"
    ms = "ms"
    us = "us"
    ns = "ns"
