"""Formats of times: translates a dialect's format into those of DuckDB's `strftime` and Spark's `date_format`.

Only the parts that every system writes alike: years of four digits, months, days, hours from 0 to 23, minutes, seconds and
milliseconds."""

from __future__ import annotations

import re
from typing import Final

from anabranch.query.dialects.calls import NotTranslated

_DUCKDB: Final = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S", "ms": "%g"}
_SPARK: Final = {"year": "yyyy", "month": "MM", "day": "dd", "hour": "HH", "minute": "mm", "second": "ss", "ms": "SSS"}
_JAVA: Final = {letters: part for part, letters in _SPARK.items()}
_STRFTIME: Final = {"%Y": "year", "%m": "month", "%d": "day", "%H": "hour", "%S": "second", "%T": "hour:minute:second"}
_MYSQL: Final = {**_STRFTIME, "%i": "minute", "%s": "second"}
_BIGQUERY: Final = {**_STRFTIME, "%M": "minute", "%F": "year-month-day", "%E3S": "second.ms"}
_TO_CHAR: Final = {"YYYY": "year", "MM": "month", "DD": "day", "HH24": "hour", "MI": "minute", "SS": "second"}

_LETTERS: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z'\[\]{}#]")
_PERCENT: Final = re.compile(r"%E3S|%.|[^%]", re.DOTALL)
_WORDS: Final = re.compile(r'"([^"\\]*)"|HH24|FF3|YYYY|MM|DD|MI|SS(?!SS)|MS|[ ,./:_-]')

_DIALECTS: Final = {
    ("trino", "DATE_FORMAT"): (_PERCENT, _MYSQL),
    ("bigquery", ""): (_PERCENT, _BIGQUERY),
    ("snowflake", ""): (_WORDS, {**_TO_CHAR, "FF3": "ms"}),
    ("materialize", ""): (_WORDS, {**_TO_CHAR, "MS": "ms"}),
    ("risingwave", ""): (_WORDS, {**_TO_CHAR, "MS": "ms"}),
}


def pattern(format_: str, function: str, dialect: str, *, spark: bool) -> str:
    """The format for DuckDB or for Spark. Raises NotTranslated for letters that are not known to mean the same."""
    parts, letters = _DIALECTS.get((dialect, function)) or _DIALECTS.get((dialect, "")) or (_LETTERS, _JAVA)
    written: list[tuple[str, str]] = []
    at = 0
    while at < len(format_):
        found = parts.match(format_, at)
        part = _part(found, letters) if found is not None else None
        if found is None or part is None:
            raise NotTranslated(
                f"the format '{format_[at : at + 4]}' of {function} is not translated; use "
                f"{', '.join(letters)}, and signs between them"
            )
        if written and not part[0] and not written[-1][0]:  # joins adjacent texts: '' between them would mean a quote
            part = "", written.pop()[1] + part[1]
        written.append(part)
        at = found.end()
    return "".join(_written(part, spark=spark) for part in written)


def _part(found: re.Match[str], letters: dict[str, str]) -> tuple[str, str] | None:
    """The names of the parts of a time, and a literal text; one of them is empty. None for an unknown letter."""
    text = found.group()
    if text in letters:
        return letters[text], ""
    if found.re is _PERCENT:
        return ("", text) if text[0] != "%" else ("", "%") if text == "%%" else None
    if text[0] == '"':
        return "", text[1:-1]
    if text[0] == "'":
        return "", text[1:-1].replace("''", "'") if len(text) > 2 else "'"
    return None if text[0].isascii() and text[0].isalpha() else ("", text)


def _written(part: tuple[str, str], *, spark: bool) -> str:
    names, text = part
    if names:
        return re.sub("[a-z]+", lambda name: (_SPARK if spark else _DUCKDB)[name.group()], names)
    if not spark:
        return text.replace("%", "%%")
    text = text.replace("'", "''")
    return f"'{text}'" if re.search(r"[A-Za-z\[\]{}#]", text) else text
