"""The parameters of SQL for pipelines: declared in it with a type, perhaps with a default, and given values as text.

    DECLARE PARAMETER size INTERVAL DEFAULT '10 seconds';
    DECLARE PARAMETER limit DOUBLE;  -- what is too much

Found without a parser of SQL, which not every process that takes SQL has installed. Uses of parameters, `:size`, are in
`anabranch.spark.pipelines.sql.rewrites`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, NamedTuple, NoReturn

from anabranch import limits
from anabranch.core.intervals import parse_interval_us
from anabranch.errors import InvalidSql
from anabranch.model.names import StreamName
from anabranch.model.times import to_datetime, to_micros

__all__ = ["NAMES", "Parameter", "bind", "declarations"]

NAMES: Final = ("STREAM", "COLUMN")
"""The types of parameters that stand for a name."""
_TYPES: Final = ("STRING", "BOOLEAN", "INT", "BIGINT", "DOUBLE", "DATE", "TIMESTAMP", "INTERVAL", *NAMES)
_BITS: Final = {"INT": 31, "BIGINT": 63}
_LISTED_MAX: Final = 10  # parameters in a message
_SHOWN_CHARS_MAX: Final = 100  # of a name, value or comment in a message


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as declared on `line`. `default` as text; None: a value has to be given. `meaning` is the comment behind
    the declaration, on the same line."""

    name: str
    kind: str
    default: str | None
    line: int
    meaning: str = ""


def bind(declared: Sequence[Parameter], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of each parameter. Raises InvalidSql for those without a value, for a value that is not of its type, and
    for values of parameters that are not declared."""
    _check_names(declared, given)
    values = {}
    for parameter in declared:
        text = given.get(parameter.name, parameter.default)
        assert text is not None
        try:
            values[parameter.name] = _value(parameter.kind, text)
        except (ValueError, OverflowError) as exc:  # InvalidArgument is a ValueError
            raise InvalidSql(
                f"parameter '{parameter.name}' is of type {parameter.kind}, not '{text:.{_SHOWN_CHARS_MAX}}'",
                line=parameter.line,
            ) from exc
    return values


def declarations(text: str) -> tuple[Parameter, ...]:
    """The parameters that a text declares, in its order. Raises InvalidSql."""
    found: dict[str, Parameter] = {}
    if "DECLARE" not in text.upper():
        return ()
    for words in _declaring(text):
        parameter = _Declaration(text, words).parameter()
        if parameter.name in found:
            raise InvalidSql(f"parameter '{parameter.name}' is declared twice", line=parameter.line)
        found[parameter.name] = parameter
    return tuple(found.values())


# values


def _check_names(declared: Sequence[Parameter], given: Mapping[str, str]) -> None:
    known = {each.name for each in declared}
    for name in given:
        if name not in known:
            names = ", ".join(each.name for each in declared[:_LISTED_MAX])
            more = ", …" if len(declared) > _LISTED_MAX else ""
            declare = f"it declares {names}{more}" if declared else "it declares none: DECLARE PARAMETER name TYPE"
            raise InvalidSql(f"the SQL declares no parameter '{name:.{_SHOWN_CHARS_MAX}}'; {declare}")
    missing = [each for each in declared if each.default is None and each.name not in given]
    if missing:
        listed = ", ".join(
            f"{each.name} ({each.meaning[:_SHOWN_CHARS_MAX] or each.kind})" for each in missing[:_LISTED_MAX]
        )
        more = f" and {len(missing) - _LISTED_MAX} more" if len(missing) > _LISTED_MAX else ""
        raise InvalidSql(f"these parameters have no default, so they need values: {listed}{more}", missing[0].line)


def _value(kind: str, text: str) -> str | bool | int | float | date | datetime:
    match kind:
        case "STREAM":
            return str(StreamName.parse(text))
        case "COLUMN":
            if not text or len(text) > limits.NAME_CHARS_MAX or not text.isprintable():
                raise ValueError(text)
            return text
        case "BOOLEAN":
            return ("false", "true").index(text.lower()) == 1
        case "INT" | "BIGINT":
            number = int(text)
            if not -(1 << _BITS[kind]) <= number < 1 << _BITS[kind]:
                raise OverflowError(text)
            return number
        case "DOUBLE":
            return float(text)
        case "DATE":
            return date.fromisoformat(text)
        case "TIMESTAMP":
            return to_datetime(to_micros(text))
        case "INTERVAL":  # as text, which windows take; elsewhere CAST(:name AS INTERVAL)
            parse_interval_us(text)
            return text
    return text


# declarations

# As Spark has them: backslashes escape in texts, not in raw ones. What is not closed goes on to the end.
_TOKEN: Final = re.compile(
    r"""(?P<space> \s+ | --[^\n]* )
    | (?P<comment> /\* )
    | (?P<raw> [rR] (?: '[^']*+ (?:'|\Z) | "[^"]*+ (?:"|\Z) ) )
    | (?P<text> ' (?: [^'\\] | \\. )*+ (?:'|\\?\Z) | " (?: [^"\\] | \\. )*+ (?:"|\\?\Z) )
    | (?P<name> ` (?: [^`] | `` )*+ (?:`|\Z) )
    | (?P<number> \d [\d.]* (?: [eE] [+-]? \d+ )? )
    | (?P<word> \w+ )
    | (?P<sign> . )""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r"}
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MEANING: Final = re.compile(r"[ \t]*--[ \t]*([^\n]*)")


class _SqlToken(NamedTuple):
    kind: str
    text: str
    start: int
    stop: int

    @property
    def word(self) -> str:
        """The word in upper case; a sign as it is; nothing for a quoted name or a text."""
        return self.text.upper() if self.kind in ("word", "number", "sign") else ""


def _declaring(text: str) -> Iterator[list[_SqlToken]]:
    """The tokens of each statement that begins with DECLARE PARAMETER, and its semicolon."""
    statement: list[_SqlToken] = []
    declares = True  # so far; no tokens of other statements are kept
    for token in _tokens(text):
        if token.word == ";":
            if len(statement) > 1:
                yield [*statement, token]
            statement, declares = [], True
        elif declares:
            declares = len(statement) > 1 or token.word == ("DECLARE", "PARAMETER")[len(statement)]
            statement.append(token)
            if not declares:
                statement.clear()
    if len(statement) > 1:
        yield statement


def _tokens(text: str) -> Iterator[_SqlToken]:
    at = 0
    while found := _TOKEN.match(text, at):
        kind = str(found.lastgroup)
        at = _comment_end(text, at) if kind == "comment" else found.end()
        if kind not in ("space", "comment"):
            yield _SqlToken(kind, found[0], found.start(), at)


def _comment_end(text: str, at: int) -> int:
    """Where the comment that begins here ends; there may be others in it."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


class _Declaration:
    """DECLARE PARAMETER name TYPE [DEFAULT value]"""

    def __init__(self, text: str, tokens: Sequence[_SqlToken]) -> None:
        self._text = text
        self._line = text.count("\n", 0, tokens[0].start) + 1
        self._end = tokens[-1] if tokens[-1].word == ";" else None
        self._rest = list(tokens[2 : None if self._end is None else -1])

    def parameter(self) -> Parameter:
        name, kind = self._name(), self._rest.pop(0).word if self._rest else ""
        if name is None or kind not in _TYPES:
            self._fail(f"expected DECLARE PARAMETER name TYPE [DEFAULT value], with a type of {', '.join(_TYPES)}")
        default = None
        if self._rest and self._rest[0].word == "DEFAULT":
            del self._rest[0]
            default = self._default()
        if self._rest:
            self._fail("expected ; after the declaration of a parameter")
        meaning = None if self._end is None else _MEANING.match(self._text, self._end.stop)
        return Parameter(name, kind, default, self._line, "" if meaning is None else meaning[1].strip())

    def _name(self) -> str | None:
        token = self._rest.pop(0) if self._rest else None
        if token is None:
            return None
        if token.kind == "name":
            return token.text[1:-1].replace("``", "`")
        return token.text if _PLAIN_NAME.match(token.text) else None

    def _default(self) -> str:
        sign = "-" if self._rest and self._rest[0].text == "-" else ""
        del self._rest[: len(sign)]
        if not self._rest:
            self._fail("expected a value after DEFAULT")
        value = self._rest.pop(0)
        match value.kind:
            case "text":
                return sign + _ESCAPED.sub(lambda found: _CONTROLS.get(found[1], found[1]), value.text[1:-1])
            case "raw":
                return sign + value.text[2:-1]
            case "name":
                return sign + value.text[1:-1].replace("``", "`")
        return sign + value.text

    def _fail(self, message: str) -> NoReturn:
        raise InvalidSql(message, line=self._line)
