"""The clause WITH (…): the options of a statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from sqlglot import TokenType

from anabranch.core.intervals import parse_interval_us
from anabranch.core.shed_rule import ShedRule
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.statement import StatementOptions

__all__ = ["with_options"]

_T = TypeVar("_T")
_OPTIONS: Final = frozenset(
    {"key", "time", "watermark", "idle", "trigger", "start", "mode", "segments", "late", "shed", "shed_priority"}
    | {"start_query", "handler"}
)
_MODES: Final = {"append": "append", "complete": "complete"}
_FLAGS: Final = {"true": True, "false": False}


def with_options(cursor: Cursor) -> StatementOptions:
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
    return _to_options(given)


def _to_options(given: Mapping[str, tuple[str, int]]) -> StatementOptions:
    """The options from their texts and the lines of these. Raises InvalidSql."""

    def one_of(name: str, allowed: Mapping[str, _T], default: _T) -> _T:
        if name not in given:
            return default
        text, line = given[name]
        if text.lower() not in allowed:
            raise InvalidSql(f"{name} = '{text}': expected {' or '.join(allowed)}", line=line)
        return allowed[text.lower()]

    def interval(name: str) -> int | None:
        if name not in given:
            return None
        text, line = given[name]
        try:
            value = parse_interval_us(text)
        except InvalidSql as exc:
            raise InvalidSql(f"{name}: {exc}", line=line) from exc
        if value < 0 or value % 1_000:
            raise InvalidSql(f"{name} = '{text}': expected whole milliseconds, not less than 0", line=line)
        return value

    def text_of(name: str) -> str | None:
        return given[name][0] if name in given else None

    shed = None
    if (rule := text_of("shed")) is not None:
        try:
            shed = ShedRule.parse(rule)
        except InvalidArgument as exc:
            raise InvalidSql(f"shed = {exc}", line=given["shed"][1]) from exc
    if shed is None and "shed_priority" in given:
        raise InvalidSql("shed_priority requires shed, such as shed = 'lag > 10 s'", line=given["shed_priority"][1])
    segments = text_of("segments")
    if segments is not None and not (segments.isdecimal() and int(segments) > 0):
        raise InvalidSql(f"segments = '{segments}': expected a number from 1", line=given["segments"][1])
    return StatementOptions(
        key=text_of("key"),
        time=text_of("time"),
        watermark_us=interval("watermark"),
        idle_us=interval("idle"),
        trigger_us=interval("trigger"),
        start=text_of("start"),
        mode=one_of("mode", _MODES, "append"),
        segments=None if segments is None else int(segments),
        late=one_of("late", _FLAGS, True),
        shed=shed,
        shed_priority=text_of("shed_priority"),
        start_query=text_of("start_query"),
        handler=text_of("handler"),
    )
