"""Functions of texts: positions, padding, parts, and patterns. Positions count from 1, in code points."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import Conversion, NotTranslated, WriterRow, WrittenCall, refused_in
from anabranch.query.dialects.kinds import overwrite
from anabranch.query.dialects.regular_expressions import Pattern, read_pattern

_PADDED_MAX: Final = 10_000
_PARTS_MAX: Final = 10_000

_ASCII_SPACES: Final = "\t\n\x0b\x0c\r "
_SEPARATORS: Final = "\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a\u2028\u2029\u205f\u3000"
_UNICODE: Final = _ASCII_SPACES + "\x85\xa0\u2007\u202f" + _SEPARATORS
TRIMMED: Final = {
    "ksqldb": "".join(map(chr, range(1, 33))),
    "bigquery": _UNICODE,
    "risingwave": _UNICODE,
    "trino": _ASCII_SPACES + "\x1c\x1d\x1e\x1f" + _SEPARATORS,
}
"""The characters that TRIM removes if none are named; in all other dialects only spaces."""


def write_trim(node: exp.Trim, to: Conversion) -> None:
    """`TRIM`, `LTRIM` and `RTRIM`, with the characters that they remove: DuckDB and Spark have different ones by themselves."""
    side = (node.args.get("position") or "BOTH").upper()
    arguments = [node.this, node.expression or exp.Literal.string(TRIMMED.get(to.dialect, " "))]
    call = WrittenCall(to.dialect, to.pipeline, "TRIM", arguments)
    text, characters = call.sql(0), call.sql(1)
    name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
    overwrite(node, call.either(f"{name}({text}, {characters})", f"trim({side} {characters} FROM {text})"))


# Positions


def _position(call: WrittenCall, *, text: int, constant: bool = False) -> str:
    """The position of a text in another; `text` is the index of the argument to search in."""
    call.expect(2, example=f"{call.name} of two texts")
    wanted = 1 - text
    if constant and not call.text(wanted, what="a text to look for"):
        raise NotTranslated(f"{call.name} of an empty text is not translated")
    return call.either(f"strpos({call.sql(text)}, {call.sql(wanted)})", f"instr({call.sql(text)}, {call.sql(wanted)})")


# Padding, repeating, reversing


def _pad(call: WrittenCall, *, fill: bool) -> str:
    """`LPAD(x, 5, '0')`; without `fill` the third argument may be left out."""
    call.expect(3 if fill else 2, 3, example=f"{call.name}(x, 5, '0')")
    size = call.constant(1, least=0, most=_PADDED_MAX, what="a length")
    filler = call.text(2, what="a text to fill with") if len(call.arguments) > 2 else " "
    if not filler:
        raise NotTranslated(f"{call.name} with an empty text is not translated")
    return f"{call.name.lower()}({call.sql(0)}, {size}, {call.quoted(filler)})"


def _repeat(call: WrittenCall) -> str:
    call.expect(2, example=f"{call.name}(x, 3)")
    return f"repeat({call.sql(0)}, {call.constant(1, least=0, most=_PADDED_MAX, what='a number')})"


def _reverse(call: WrittenCall) -> str:
    call.expect(1, example=f"{call.name}(x)")
    # DuckDB's own reverse() keeps accents with their letters.
    return call.either(f"array_to_string(list_reverse(string_split({call.sql(0)}, '')), '')", f"reverse({call.sql(0)})")


# Parts


def _split_part(call: WrittenCall) -> str:
    """The nth part, counted from 1; an empty text beyond the last."""
    call.expect(3, example=f"{call.name}(x, ',', 1)")
    separator, number = _separator(call), call.constant(2, least=1, most=_PARTS_MAX, what="a number")
    return f"split_part({call.sql(0)}, {call.quoted(separator)}, {number})"


def _split_part_or_null(call: WrittenCall, *, first: int, of_empty: bool) -> str:
    """The nth part, counted from `first`; null beyond the last. `of_empty`: whether an empty text has one
    (empty) part."""
    call.expect(3, example=f"{call.name}(x, ',', {first})")
    separator = _separator(call)
    number = call.constant(2, least=first, most=_PARTS_MAX, what="a number") + 1 - first
    text = call.sql(0) if of_empty else f"nullif({call.sql(0)}, '')"
    plain = re.sub(r"([^A-Za-z0-9\s])", r"\\\1", separator) if separator.isascii() else separator
    return call.either(
        f"string_split({text}, {call.quoted(separator)})[{number}]",
        f"try_element_at(split({text}, {call.quoted(plain)}, -1), {number})",
    )


def _separator(call: WrittenCall) -> str:
    separator = call.text(1, what="a separator")
    if not separator:
        raise NotTranslated(f"{call.name} with an empty separator is not translated")
    return separator


# Patterns


def _pattern(call: WrittenCall, at: int, *, group: int | None = None, replaces: bool = False) -> tuple[Pattern, str]:
    """The pattern of an argument, and how the target writes it."""
    found = read_pattern(call.text(at, what="a pattern"), call.dialect)
    return found, call.quoted(found.written(group=group, replaces=replaces))


def _matches(call: WrittenCall) -> str:
    """Whether the pattern matches a part of the text."""
    call.expect(2, example=f"{call.name}(x, 'pattern')")
    return _matched(call, call.sql(0), _pattern(call, 1)[1])


def _matched(call: WrittenCall, text: str, written: str) -> str:
    return call.either(f"regexp_matches({text}, {written})", f"regexp_like({text}, {written})")


def _extract(call: WrittenCall, *, text: int, group: int | None) -> str:
    """The text of a group; null if the pattern does not match. Without a `group`: the only one, else the match."""
    call.expect(2, 3 if group is not None else 2, example=f"{call.name} of a text and a pattern")
    pattern = 1 - text
    if len(call.arguments) > 2:
        group = call.constant(2, least=0, most=100, what="a group")
    read = _pattern(call, pattern)[0]
    if group is None:
        if read.groups > 1:
            raise NotTranslated(f"{call.name} with several groups is not translated; write (?: ) for all but one")
        group = read.groups
    if group > read.groups:
        raise NotTranslated(f"the pattern has no group {group}")
    written, value = _pattern(call, pattern, group=group)[1], call.sql(text)
    return f"CASE WHEN {_matched(call, value, written)} THEN regexp_extract({value}, {written}, {group}) END"


def _replace(call: WrittenCall, *, least: int) -> str:
    """Replaces every match of the pattern by a constant text."""
    call.expect(least, 3, example=f"{call.name}(x, 'pattern', 'text')")
    new = call.text(2, what="a replacement") if len(call.arguments) > 2 else ""
    if "\\" in new or "$" in new:
        raise NotTranslated(f"a replacement with \\ or $ in {call.name} is not translated; write a plain text")
    written = _pattern(call, 1, replaces=True)[1]
    replacement = call.quoted(new)
    return call.either(
        f"regexp_replace({call.sql(0)}, {written}, {replacement}, 'g')",
        f"regexp_replace({call.sql(0)}, {written}, {replacement})",
    )


TEXTS: Final[tuple[WriterRow, ...]] = (
    ("flink risingwave materialize trino snowflake", "POSITION", partial(_position, text=1)),
    ("risingwave materialize trino", "STRPOS", partial(_position, text=0)),
    ("bigquery", "STRPOS", partial(_position, text=0, constant=True)),
    ("bigquery", "INSTR", partial(_position, text=0, constant=True)),
    ("flink ksqldb", "INSTR", partial(_position, text=0, constant=True)),
    ("flink", "LOCATE", partial(_position, text=1, constant=True)),
    ("snowflake", "CHARINDEX", partial(_position, text=1, constant=True)),
    ("flink ksqldb trino", "LPAD RPAD", partial(_pad, fill=True)),
    ("risingwave materialize snowflake bigquery", "LPAD RPAD", partial(_pad, fill=False)),
    ("flink snowflake bigquery risingwave materialize", "REPEAT", _repeat),
    ("flink trino snowflake bigquery risingwave materialize", "REVERSE", _reverse),
    ("risingwave materialize snowflake", "SPLIT_PART", _split_part),
    ("trino", "SPLIT_PART", partial(_split_part_or_null, first=1, of_empty=True)),
    ("flink", "SPLIT_INDEX", partial(_split_part_or_null, first=0, of_empty=False)),
    refused_in("azure", "CHARINDEX", instead="x LIKE '%a%': whether it minds the case of letters is not documented"),
    ("flink", "REGEXP", _matches),
    ("risingwave materialize", "~", _matches),
    ("trino", "REGEXP_LIKE", _matches),
    ("bigquery", "REGEXP_CONTAINS", _matches),
    ("flink trino", "REGEXP_EXTRACT", partial(_extract, text=0, group=0)),
    ("ksqldb", "REGEXP_EXTRACT", partial(_extract, text=1, group=0)),
    ("bigquery", "REGEXP_EXTRACT", partial(_extract, text=0, group=None)),
    ("flink ksqldb bigquery", "REGEXP_REPLACE", partial(_replace, least=3)),
    ("trino", "REGEXP_REPLACE", partial(_replace, least=2)),
    refused_in("snowflake", "REGEXP_LIKE RLIKE REGEXP_SUBSTR REGEXP_REPLACE", instead="LIKE with % and _"),
    refused_in("risingwave materialize", "REGEXP_REPLACE", instead="replace(x, 'a', 'b')"),
)
