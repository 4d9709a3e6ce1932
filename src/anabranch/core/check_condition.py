"""The language of checks: conditions on the columns of a row, in a small part of SQL, evaluated over Arrow batches.

    celsius BETWEEN -90 AND 60 AND unit IN ('C', 'F')
    length(device) > 0 OR at IS NULL
    regexp_matches(serial, '^[A-Z]{2}[0-9]+$')

There are comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS [NOT] NULL, arithmetic (+ - * / %), literals (numbers,
'text', TRUE, FALSE, NULL, DATE '…', TIMESTAMP '…'), fields of structs (`a.b`), and the functions in `FUNCTIONS`. Names
are as in SQL: without quotes their case does not matter. Logic is SQL's, with three values. A condition depends on
nothing but the row. The language has no loops and no access to the system; its regular expressions (RE2) take linear
time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core.sql_text import check_sql_text
from anabranch.errors import InvalidSql
from anabranch.model.times import to_micros

__all__ = ["CheckCondition", "parse_condition"]

Values = Any  # an Arrow array or scalar
Node = Callable[[pa.RecordBatch], Values]
Operation = Callable[[Values, Values], Values]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")+")"""
    r"""|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign><=|>=|<>|!=|[-+*/%(),.=<>]))"""
)
_KEYWORDS: Final = frozenset(
    ["AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "NULL", "TRUE", "FALSE", "DATE", "TIMESTAMP"]
)
_DEPTH_MAX: Final = 50
_COMPARISONS: Final[Mapping[str, Callable[[Values, Values], Values]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_NULL: Final = pa.NA  # needs no import of pandas, which takes longer than all our own imports


def _matches(values: Values, pattern: Values) -> Values:
    return pc.match_substring_regex(values, _constant_text(pattern))


def _constant_text(pattern: Values) -> str:
    if not isinstance(pattern, pa.StringScalar) or pattern.as_py() is None:
        raise ValueError("expected the pattern as a text literal")
    return str(pattern.as_py())


def _like(values: Values, pattern: Values) -> Values:
    return pc.match_like(values, _constant_text(pattern))


def _ilike(values: Values, pattern: Values) -> Values:
    return pc.match_like(values, _constant_text(pattern), ignore_case=True)


FUNCTIONS: Final[Mapping[str, tuple[int, Callable[..., Values]]]] = {
    "abs": (1, pc.abs_checked),
    "length": (1, pc.utf8_length),
    "lower": (1, pc.utf8_lower),
    "upper": (1, pc.utf8_upper),
    "trim": (1, pc.utf8_trim_whitespace),
    "regexp_matches": (2, _matches),
}


@dataclass(frozen=True, slots=True)
class CheckCondition:
    """A parsed condition. `columns` are the columns that it names, spelled as in its text."""

    columns: tuple[str, ...]
    node: Node

    def holds(self, batch: pa.RecordBatch) -> Values:
        """For each row true, false or null: a boolean array. Raises InvalidSql if a column is missing, types don't fit,
        or a value can't be computed for a row."""
        try:
            result = self.node(batch)
        except (pa.ArrowException, ValueError, TypeError) as exc:
            if isinstance(exc, InvalidSql):
                raise
            raise InvalidSql(str(exc).splitlines()[0] or "it can't be evaluated") from exc
        if pa.types.is_null(result.type):
            return pa.nulls(batch.num_rows, pa.bool_())
        if not pa.types.is_boolean(result.type):
            raise InvalidSql(f"expected a condition, which is true or false, got a value of type {result.type}")
        return pa.repeat(result, batch.num_rows) if isinstance(result, pa.Scalar) else result


@lru_cache(maxsize=1_024)
def parse_condition(text: str) -> CheckCondition:
    """Raises InvalidSql for anything that is not one condition of the language."""
    return _ConditionParser(text).parse()


class _ConditionParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        self._depth = 0
        self._columns: dict[str, None] = {}
        check_sql_text(text, what="the condition", bytes_max=limits.SQL_BYTES_MAX)
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None:
                raise InvalidSql(
                    f"the condition {text!r:.200} can't be read at {text[position : position + 20].strip()!r}"
                )
            kind = str(found.lastgroup)
            self._tokens.append((kind, found[kind]))
            position = found.end()

    def parse(self) -> CheckCondition:
        node = self._or()
        if self._at < len(self._tokens):
            self._fail()
        return CheckCondition(tuple(self._columns), node)

    # tokens

    def _fail(self, message: str | None = None) -> NoReturn:
        found = repr(self._tokens[self._at][1]) if self._at < len(self._tokens) else "its end"
        raise InvalidSql(f"the condition {self._text!r:.200} can't be used: {message or f'unexpected {found:.40}'}")

    def _take(self, *words: str) -> str | None:
        if self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind in ("word", "sign") and text.upper() in words:
                self._at += 1
                return text.upper()
        return None

    def _need(self, word: str) -> None:
        if self._take(word) is None:
            found = repr(self._tokens[self._at][1]) if self._at < len(self._tokens) else "its end"
            self._fail(f"expected {word}, not {found:.40}")

    def _kind(self) -> str | None:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else None

    # grammar

    def _or(self) -> Node:
        node, more = self._and(), list[tuple[Operation, Node]]()
        while self._take("OR"):
            more.append((_or, self._and()))
        return _chain(node, more)

    def _and(self) -> Node:
        node, more = self._not(), list[tuple[Operation, Node]]()
        while self._take("AND"):
            more.append((_and, self._not()))
        return _chain(node, more)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._fail("it is nested too deeply")

    def _not(self) -> Node:
        negations = 0
        while self._take("NOT"):
            negations += 1
        node = self._predicate()
        return _unary(_invert, node) if negations % 2 else node

    def _predicate(self) -> Node:
        left = self._sum()
        if sign := self._take(*_COMPARISONS):
            return _binary(_comparison(_COMPARISONS[sign]), left, self._sum())
        if self._take("IS"):
            negated = self._take("NOT")
            self._need("NULL")
            return _unary(pc.is_valid if negated else pc.is_null, left)
        negated = self._take("NOT")
        node = self._range(left)
        if node is None:
            if negated:
                self._fail()
            return left
        return _unary(_invert, node) if negated else node

    def _range(self, left: Node) -> Node | None:
        if self._take("BETWEEN"):
            low = self._sum()
            self._need("AND")
            high = self._sum()
            above, below = _comparison(pc.greater_equal), _comparison(pc.less_equal)
            return lambda batch: _and(above(left(batch), low(batch)), below(left(batch), high(batch)))
        if self._take("IN"):
            self._need("(")
            members = [self._sum()]
            while self._take(","):
                members.append(self._sum())
            self._need(")")
            first, *others = (_binary(_comparison(pc.equal), left, member) for member in members)
            return _chain(first, [(_or, test) for test in others])
        for word in ("LIKE", "ILIKE"):
            if self._take(word):
                return _binary(_like if word == "LIKE" else _ilike, left, self._sum())
        return None

    def _sum(self) -> Node:
        node, more = self._product(), list[tuple[Operation, Node]]()
        while sign := self._take("+", "-"):
            more.append((_calculation(pc.add_checked if sign == "+" else pc.subtract_checked), self._product()))
        return _chain(node, more)

    def _product(self) -> Node:
        node, more = self._signed(), list[tuple[Operation, Node]]()
        while sign := self._take("*", "/", "%"):
            operation = {"*": pc.multiply_checked, "/": _quotient, "%": _remainder}[sign]
            more.append((_calculation(operation), self._signed()))
        return _chain(node, more)

    def _signed(self) -> Node:
        negative = False
        while self._take("-"):
            negative = not negative
        node = self._primary()
        return _unary(pc.negate_checked, node) if negative else node

    def _primary(self) -> Node:
        if self._take("("):
            self._deeper()
            node = self._or()
            self._need(")")
            self._depth -= 1
            return node
        kind = self._kind()
        if kind == "number" or kind == "text":
            return _literal(self._literal(kind))
        for word, value in (("TRUE", pa.scalar(True)), ("FALSE", pa.scalar(False)), ("NULL", _NULL)):
            if self._take(word):
                return _literal(value)
        if (typed := self._typed_literal()) is not None:
            return _literal(typed)
        if kind not in ("word", "quoted"):
            self._fail()
        word = self._tokens[self._at][1]
        if kind == "word" and self._tokens[self._at + 1 : self._at + 2] == [("sign", "(")]:
            return self._call(word)
        if kind == "word" and word.upper() in _KEYWORDS:
            self._fail()
        return self._column()

    def _literal(self, kind: str) -> pa.Scalar:
        text = self._tokens[self._at][1]
        self._at += 1
        if kind == "text":
            return pa.scalar(text[1:-1].replace("''", "'"))
        if text.isdecimal():
            if int(text) >= 1 << 63:
                self._fail(f"{text:.40} is too large a number")
            return pa.scalar(int(text))
        return pa.scalar(float(text))

    def _typed_literal(self) -> pa.Scalar | None:
        following = self._tokens[self._at + 1 : self._at + 2]
        if not following or following[0][0] != "text" or not (kind := self._take("DATE", "TIMESTAMP")):
            return None
        text = self._literal("text").as_py()
        try:
            if kind == "DATE":
                return pa.scalar(text).cast(pa.date32())
            return pa.scalar(to_micros(text), pa.timestamp("us", "UTC"))
        except (pa.ArrowInvalid, ValueError):
            self._fail(f"{text!r:.40} is no {kind.lower()}")

    def _call(self, name: str) -> Node:
        if name.lower() not in FUNCTIONS:
            self._fail(f"unknown function {name:.40}; expected one of {', '.join(sorted(FUNCTIONS))}")
        count, function = FUNCTIONS[name.lower()]
        self._at += 2
        self._deeper()
        arguments = [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        self._need(")")
        self._depth -= 1
        if len(arguments) != count:
            self._fail(f"{name:.40} takes {count} argument{'s' * (count > 1)}, not {len(arguments)}")
        return lambda batch: function(*(argument(batch) for argument in arguments))

    def _column(self) -> Node:
        path = [self._name()]
        while self._take("."):
            path.append(self._name())
        self._columns[path[0][0]] = None
        return lambda batch: _column_values(batch, path)

    def _name(self) -> tuple[str, bool]:
        """The name, and whether it is quoted."""
        if self._kind() not in ("word", "quoted"):
            self._fail()
        kind, text = self._tokens[self._at]
        self._at += 1
        return (text[1:-1].replace('""', '"'), True) if kind == "quoted" else (text, False)


def _literal(value: pa.Scalar) -> Node:
    return lambda batch: value


def _unary(function: Callable[[Values], Values], node: Node) -> Node:
    return lambda batch: function(node(batch))


def _binary(function: Operation, left: Node, right: Node) -> Node:
    return lambda batch: function(left(batch), right(batch))


def _chain(first: Node, more: Sequence[tuple[Operation, Node]]) -> Node:
    """Applies operations from left to right, in a loop: nested calls would be as deep as there are operations."""

    def value(batch: pa.RecordBatch) -> Values:
        found = first(batch)
        for function, node in more:
            found = function(found, node(batch))
        return found

    return value if more else first


def _and(left: Values, right: Values) -> Values:
    return pc.and_kleene(_logical(left), _logical(right))


def _or(left: Values, right: Values) -> Values:
    return pc.or_kleene(_logical(left), _logical(right))


def _logical(values: Values) -> Values:
    return pa.scalar(None, pa.bool_()) if pa.types.is_null(values.type) else values


def _invert(values: Values) -> Values:
    return pc.invert(_logical(values))


def _comparison(function: Callable[[Values, Values], Values]) -> Callable[[Values, Values], Values]:
    def compare(left: Values, right: Values) -> Values:
        if pa.types.is_null(left.type) or pa.types.is_null(right.type):
            return pa.scalar(None, pa.bool_())
        try:
            return function(*_same_type(left, right))
        except pa.ArrowNotImplementedError as exc:
            raise ValueError(f"can't compare {left.type} with {right.type}") from exc

    return compare


def _calculation(function: Callable[[Values, Values], Values]) -> Callable[[Values, Values], Values]:
    def calculate(left: Values, right: Values) -> Values:
        if pa.types.is_null(left.type) or pa.types.is_null(right.type):
            return _NULL
        return function(left, right)

    return calculate


def _same_type(left: Values, right: Values) -> tuple[Values, Values]:
    """Both operands. If one is a time or a date and the other a literal text, the text is read as the same type."""
    if isinstance(right, pa.StringScalar) and pa.types.is_temporal(left.type):
        return left, _as_temporal(right, left.type)
    if isinstance(left, pa.StringScalar) and pa.types.is_temporal(right.type):
        return _as_temporal(left, right.type), right
    return left, right


def _as_temporal(text: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(to_micros(text.as_py()), kind) if pa.types.is_timestamp(kind) else text.cast(kind)


def _quotient(left: Values, right: Values) -> Values:
    """The quotient as a float, also of integers; a division by zero gives infinity or NaN."""
    return pc.divide(pc.cast(left, pa.float64()), pc.cast(right, pa.float64()))


def _remainder(left: Values, right: Values) -> Values:
    if not (pa.types.is_integer(left.type) and pa.types.is_integer(right.type)):
        raise ValueError("expected integers as the operands of %")
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def _column_values(batch: pa.RecordBatch, path: list[tuple[str, bool]]) -> Values:
    values: Values = batch.column(_index(batch.schema.names, path[0]))
    for part in path[1:]:
        if not pa.types.is_struct(values.type):
            raise InvalidSql(f"'{path[0][0]}' has no field '{part[0]}'")
        values = pc.struct_field(values, _index([field.name for field in values.type], part))
    return values


def _index(names: list[str], wanted: tuple[str, bool]) -> int:
    name, quoted = wanted
    if name in names:
        return names.index(name)
    alike = [each for each in names if each.lower() == name.lower()] if not quoted else []
    if len(alike) != 1:
        raise InvalidSql(f"unknown column '{name:.100}'; expected one of {', '.join(names)[:500]}")
    return names.index(alike[0])
