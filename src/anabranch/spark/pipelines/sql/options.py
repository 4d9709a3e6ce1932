"""The clause WITH (…): the options of a statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlglot import TokenType

from anabranch.core.intervals import parse_interval_us
from anabranch.core.shed_rule import ShedRule
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.statement import StatementOptions

__all__ = ["with_options"]


def with_options(cursor: Cursor) -> StatementOptions:
    """Step over the options, which stand in parentheses. Raises InvalidSql."""
    opened = cursor.at
    if not cursor.take("("):
        cursor.fail("expected ( after WITH")
    given: dict[str, tuple[str, int]] = {}
    while not cursor.take(")"):
        if cursor.peek() is None:
            cursor.fail("the ( after WITH is never closed", at=opened)
        if given and not cursor.take(","):
            cursor.fail("expected , or ) between the options of WITH")
        token = cursor.peek()
        name = cursor.name_at(cursor.at)
        if token is not None and token.token_type is TokenType.STRING:
            name = token.text
        if name is None:
            cursor.fail("expected an option: " + ", ".join(sorted(_OPTIONS)))
        line = cursor.tokens[cursor.at].line
        name = name.lower()
        if name not in _OPTIONS:
            raise InvalidSql(f"unknown option '{name}'; there are: {', '.join(sorted(_OPTIONS))}", line=line)
        if name in given:
            raise InvalidSql(f"option '{name}' is given twice", line=line)
        cursor.at += 1
        if not cursor.take("="):
            cursor.fail(f"expected = after option '{name}'")
        value = cursor.peek()
        if (parameter := cursor.parameter_at(cursor.at)) is not None:
            given[name] = (str(cursor.values[parameter]), line)
            cursor.at += 2
            continue
        if value is None or not (
            value.token_type in (TokenType.STRING, TokenType.NUMBER) or cursor.name_at(cursor.at) is not None
        ):
            cursor.fail(f"expected a name, number or 'text' after {name} =")
        given[name] = (value.text, value.line)
        cursor.at += 1
    if "shed_priority" in given and "shed" not in given:
        raise InvalidSql("shed_priority requires shed, such as shed = 'lag > 10 s'", line=given["shed_priority"][1])
    found: dict[str, Any] = {}
    for name, (text, line) in given.items():
        field, parse = _OPTIONS[name]
        try:
            found[field] = parse(name, text)
        except InvalidArgument as exc:
            raise InvalidSql(str(exc), line=line) from exc
    return StatementOptions(**found)


def _text(name: str, text: str) -> str:
    del name
    return text


def _interval_us(name: str, text: str) -> int:
    try:
        value = parse_interval_us(text)
    except InvalidSql as exc:
        raise InvalidSql(f"{name}: {exc}") from exc
    if value < 0 or value % 1_000:
        raise InvalidSql(f"{name} = '{text}': expected whole milliseconds, not less than 0")
    return value


def _one_of(**allowed: object) -> Callable[[str, str], object]:
    def parse(name: str, text: str) -> object:
        if text.lower() not in allowed:
            raise InvalidSql(f"{name} = '{text}': expected {' or '.join(allowed)}")
        return allowed[text.lower()]

    return parse


def _count(name: str, text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise InvalidSql(f"{name} = '{text}': expected a number from 1")
    return int(text)


def _shed(name: str, text: str) -> ShedRule:
    try:
        return ShedRule.parse(text)
    except InvalidArgument as exc:
        raise InvalidSql(f"{name} = {exc}") from exc


# By name: the field of StatementOptions, and what makes its value of the option's name and text.
_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = {
    "key": ("key", _text),
    "time": ("time", _text),
    "watermark": ("watermark_us", _interval_us),
    "idle": ("idle_us", _interval_us),
    "trigger": ("trigger_us", _interval_us),
    "start": ("start", _text),
    "mode": ("mode", _one_of(append="append", complete="complete")),
    "segments": ("segments", _count),
    "late": ("late", _one_of(true=True, false=False)),
    "shed": ("shed", _shed),
    "shed_priority": ("shed_priority", _text),
    "start_query": ("start_query", _text),
    "handler": ("handler", _text),
}
