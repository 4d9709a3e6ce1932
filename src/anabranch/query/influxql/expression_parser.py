"""Parses expressions of InfluxQL, by recursive descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.patterns import matching
from anabranch.query.influxql.times import TIME_MAX, parse_duration
from anabranch.query.influxql.tokens import KEYWORDS, Scanner, Token

_T = TypeVar("_T")
PRECEDENCE: Final = {
    "OR": 1,
    "AND": 2,
    **dict.fromkeys(("=", "!=", "<>", "<", "<=", ">", ">=", "=~", "!~"), 3),
    **dict.fromkeys(("+", "-", "|", "^"), 4),
    **dict.fromkeys(("*", "/", "%", "&"), 5),
}
"""How tightly operators bind."""
_CASTS: Final = ("float", "integer", "string", "boolean", "tag", "field", "unsigned")
_INTEGER_MAX: Final = (1 << 63) - 1


class ExpressionParser:
    """Reads expressions from the tokens of a text. `parameters` are the values of `$name`."""

    def __init__(self, text: str, parameters: Mapping[str, object]) -> None:
        self._scanner = Scanner(text)
        self._parameters = parameters
        self._at = 0
        self._depth = 0
        self._operators = 0  # of the expression that is being read
        self._held: Token | None = None

    def peek(self) -> Token:
        """The next token, which stays."""
        if self._held is None:
            self._held = self._scanner.token(self._at)
        return self._held

    def take(self) -> Token:
        """The next token."""
        found = self.peek()
        self._held = None
        self._at = found.stop
        return found

    def accept(self, *symbols: str) -> str | None:
        """Takes the next token and returns it if it is one of these keywords and operators; else returns None."""
        return self.take().symbol if self.peek().is_one_of(*symbols) else None

    def expect(self, *symbols: str) -> str:
        """The next token, which has to be one of these keywords and operators."""
        found = self.accept(*symbols)
        if found is None:
            raise self.unexpected(*symbols)
        return found

    def take_regex(self) -> ast.RegularExpression | None:
        """The regular expression that follows, if one does."""
        found = self._scanner.regex(self._at)
        if found is None:
            return None
        self._held = None
        self._at = found.stop
        try:
            matching(found.value, [""])
        except InvalidSql as exc:
            raise self._scanner.error(str(exc), found.start) from exc
        return ast.RegularExpression(found.value)

    def identifier(self) -> str:
        """A name, in double quotes or not."""
        token = self._given(self.peek())
        if token.kind not in ("name", "quoted") or token.symbol in KEYWORDS:
            raise self.unexpected("identifier")
        self.take()
        return token.value

    def whole_number(self) -> int:
        """A number from 0 on."""
        token = self._given(self.peek())
        if token.kind != "integer" or int(token.value) > _INTEGER_MAX:
            raise self.unexpected("integer")
        self.take()
        return int(token.value)

    def listed(self, item: Callable[[], _T]) -> list[_T]:
        """One or more items, with commas between them."""
        found = [item()]
        while self.accept(","):
            found.append(item())
        return found

    def unexpected(self, *expected: str) -> InvalidSql:
        """The error for the token that follows."""
        found = self.peek()
        return self._scanner.error(f"found {found.text:.80}, expected {', '.join(expected)}", found.start)

    def refused(self, message: str) -> InvalidSql:
        """The error for syntax that is understood but not supported, at the next token."""
        return self._scanner.error(message, self.peek().start)

    def expression(self) -> ast.Expression:
        """An expression."""
        if not self._depth:
            self._operators = 0
        return self._expression(1)

    def _expression(self, least: int) -> ast.Expression:
        """An expression whose operators bind at least so tightly."""
        left = self._operand()
        while True:
            operator = self._operator(least)
            if operator is None:
                return left
            precedence = PRECEDENCE[operator]
            if operator in ("=~", "!~"):
                right: ast.Expression | None = self.take_regex()
                if right is None:
                    raise self.unexpected("regex")
            else:
                right = self._expression(precedence + 1)
            # Each makes the tree one level deeper, and code that walks it recurses.
            self._operators += 1
            if self._operators > limits.INFLUXQL_OPERATORS_MAX:
                raise self.refused(f"an expression has more than {limits.INFLUXQL_OPERATORS_MAX} operators")
            left = ast.Operation("!=" if operator == "<>" else operator, left, right)

    def _operator(self, least: int) -> str | None:
        symbol = self.peek().symbol
        if PRECEDENCE.get(symbol, 0) < least:
            return None
        self.take()
        return symbol

    def _operand(self) -> ast.Expression:
        self._depth += 1
        if self._depth > limits.INFLUXQL_DEPTH_MAX:
            raise self.refused(f"an expression is nested deeper than {limits.INFLUXQL_DEPTH_MAX} levels")
        try:
            return self._nested_operand()
        finally:
            self._depth -= 1

    def _nested_operand(self) -> ast.Expression:
        if self.accept("("):
            inner = self.expression()
            self.expect(")")
            return inner
        if sign := self.accept("-", "+"):
            return self._signed(sign)
        if self.accept("*"):
            return ast.Wildcard(self._cast())
        if self.peek().is_one_of("/") and (pattern := self.take_regex()) is not None:
            return pattern
        token = self.peek()
        if token.kind == "parameter":
            return self._parameter(self.take())
        if truth := self.accept("TRUE", "FALSE"):
            return ast.Constant(truth == "TRUE")
        if token.kind == "name" and self._scanner.token(token.stop).is_one_of("("):
            return self._call()
        if token.kind in ("name", "quoted") and token.symbol not in KEYWORDS:
            return self._reference()
        constant = self._constant(token)
        if constant is None:
            raise self.unexpected("identifier", "string", "number", "bool")
        self.take()
        return constant

    def _signed(self, sign: str) -> ast.Expression:
        operand = self._operand()
        if sign == "+":
            return operand
        match operand:
            case ast.Constant(int() | float() as number) if not isinstance(number, bool):
                return ast.Constant(-number)
            case ast.Duration(ns):
                return ast.Duration(-ns)
        return ast.Operation("*", ast.Constant(-1), operand)

    def _constant(self, token: Token) -> ast.Expression | None:
        match token.kind:
            case "string":
                return ast.Constant(token.value)
            case "integer":
                number = int(token.value)
                return ast.Constant(number if number <= _INTEGER_MAX else self._finite(token))
            case "number":
                return ast.Constant(self._finite(token))
            case "duration":
                return ast.Duration(self._span(token))
        return None

    def _span(self, token: Token) -> int:
        """A duration in nanoseconds."""
        ns = parse_duration(token.value)
        if ns > TIME_MAX:
            raise self._scanner.error(f"overflowed duration {token.text:.40}", token.start)
        return ns

    def _finite(self, token: Token) -> float:
        number = float(token.value)
        if not math.isfinite(number):
            raise self._scanner.error(f"unable to parse number {token.value:.40}…", token.start)
        return number

    def _parameter(self, token: Token) -> ast.Expression:
        value = self._value(token)
        if isinstance(value, str | bool | int | float):
            return ast.Constant(value)
        raise self._scanner.error(
            f"unable to bind parameter {token.value!r}: expected a text, a number or a boolean", token.start
        )

    def _given(self, token: Token) -> Token:
        """A parameter as the token that its value is where a name or a number is expected."""
        if token.kind != "parameter":
            return token
        value = self._value(token)
        kind = "integer" if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else "quoted"
        return Token(kind, str(value), token.text, token.start, token.stop)  # type: ignore[arg-type]

    def _value(self, token: Token) -> object:
        if token.value not in self._parameters:
            raise self._scanner.error(f"missing parameter: {token.value}", token.start)
        return self._parameters[token.value]

    def _call(self) -> ast.FunctionCall:
        name = self.take().value.lower()
        self.expect("(")
        arguments: list[ast.Expression] = []
        if name == "count" and self.peek().is_one_of("DISTINCT") and not self._calls():
            self.take()
            arguments.append(ast.FunctionCall("distinct", (self._reference(),)))
        elif not self.peek().is_one_of(")"):
            arguments = self.listed(self.expression)
        self.expect(")")
        return ast.FunctionCall(name, tuple(arguments))

    def _calls(self) -> bool:
        """Whether a bracket follows the next token."""
        return self._scanner.token(self.peek().stop).is_one_of("(")

    def _reference(self) -> ast.Reference:
        name = self.identifier()
        while self.accept("."):
            name = f"{name}.{self.identifier()}"
        return ast.Reference(name, self._cast())

    def _cast(self) -> str | None:
        if not self.accept("::"):
            return None
        kind = self.peek().value.lower()
        if kind not in _CASTS:
            raise self.unexpected(*_CASTS)
        self.take()
        return kind
