"""The text of a statement. Parts can be blanked; all others keep their positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from anabranch import limits
from anabranch.core.sql_text import place_of
from anabranch.errors import InvalidSql
from anabranch.errors.optional import optional
from anabranch.query.dialects.readers import READ_AS
from anabranch.query.dialects.windows import UNITS_US, DialectWindow

with optional("a translation of SQL", "query"):
    from sqlglot import Dialect, Token, TokenType
    from sqlglot.errors import TokenError


@dataclass(slots=True)
class Found:
    """The parts removed from a statement: its target and its window."""

    target: str | None = None
    window: DialectWindow | None = None
    event_time: str | None = None
    """The column that a `window_end` without a window stands for."""
    groups: bool = True
    """Whether GROUP BY must name the window's bounds: in all dialects except ksqlDB."""
    partition: list[str] | None = None
    """The columns of PARTITION BY in a session window: each combination of their values has its own sessions."""


class StatementText:
    """The tokens of one statement. `blank` removes some from the text."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.whole = text
        self.tokens = tokens
        self.start = tokens[0].start
        """Where the statement begins in the text."""
        self._left = list(text[self.start : tokens[-1].end + 1])

    @classmethod
    def split(cls, text: str, dialect: str) -> list[StatementText]:
        """The statements of a text. Raises InvalidSql for a quote or a comment that is not closed."""
        try:
            tokens = list(Dialect.get_or_raise(READ_AS[dialect]).tokenize(text))
        except TokenError as exc:
            raise InvalidSql("a quote or a comment is not closed") from exc
        runs = groupby(tokens, lambda token: token.token_type is TokenType.SEMICOLON)
        found = [list(each) for separates, each in runs if not separates]
        if len(found) > limits.DIALECT_STATEMENTS_MAX:
            line, _ = place_of(text, found[limits.DIALECT_STATEMENTS_MAX][0].start)
            raise InvalidSql(
                f"there are {len(found):,} statements, over the limit of {limits.DIALECT_STATEMENTS_MAX:,}: split the text",
                line,
            )
        statements = [cls(text, each) for each in found]
        return _without_sets(statements) if dialect == "flink" else statements

    @property
    def left(self) -> str:
        """The statement's text, with spaces where parts were removed."""
        return "".join(self._left)

    def line(self, line: int) -> int:
        """The line of the whole text that is this one of the statement, both from 1 on."""
        return self.whole.count("\n", 0, self.start) + line

    def word(self, at: int) -> str:
        """The token at an index in upper case; empty for a quoted name, a string literal, and beyond the end."""
        if not 0 <= at < len(self.tokens):
            return ""
        token = self.tokens[at]
        return "" if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) else token.text.upper()

    def words(self, at: int, *expected: str) -> bool:
        """Whether these tokens occur consecutively, starting at this index."""
        return all(self.word(at + number) == word for number, word in enumerate(expected))

    def find(self, *expected: str, start: int = 0) -> int | None:
        """The index where these tokens first occur, or None."""
        places = range(start, len(self.tokens))
        return next((at for at in places if self.words(at, *expected)), None)

    def blank(self, first: int, last: int) -> None:
        """Replace the tokens `first` to `last`, inclusive, with spaces."""
        start, stop = self.tokens[first].start - self.start, self.tokens[last].end + 1 - self.start
        self._left[start:stop] = [each if each == "\n" else " " for each in self._left[start:stop]]

    def remove(self, first: int, last: int) -> None:
        """Remove the tokens `first` to `last`, inclusive, from the text and from the tokens."""
        self.blank(first, last)
        del self.tokens[first : last + 1]

    def put(self, first: int, last: int, text: str) -> None:
        """Replace the tokens `first` to `last`, inclusive, with a text that is not longer than they are."""
        start = self.tokens[first].start - self.start
        self.blank(first, last)
        self._left[start : start + len(text)] = text

    def closing(self, opening: int) -> int:
        """The index of the bracket that closes the one at `opening`. Raises InvalidSql, also if there is none."""
        if self.word(opening) != "(":
            raise self.error("expected (", opening)
        depth = 0
        for at in range(opening, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.word(at), 0)
            if depth == 0:
                return at
        raise self.error("this ( is never closed", opening)

    def name(self, at: int) -> tuple[str, int]:
        """The name at an index, with its parts joined by dots, and the index after it."""
        parts: list[str] = []
        while True:
            if at >= len(self.tokens) or self.tokens[at].token_type in (TokenType.STRING, TokenType.L_PAREN):
                raise self.error("expected a name", at)
            parts.append(self.tokens[at].text)
            if self.word(at + 1) != ".":
                return ".".join(parts), at + 1
            at += 2

    def arguments(self, opening: int) -> list[tuple[int, int]]:
        """The indexes of the first and the last token of each argument between brackets."""
        found: list[tuple[int, int]] = []
        closing, depth, begin = self.closing(opening), 0, opening + 1
        for at in range(opening + 1, closing + 1):
            word = self.word(at)
            if depth == 0 and (word == "," or at == closing):
                found.append((begin, at - 1))
                begin = at + 1
            depth += {"(": 1, ")": -1}.get(word, 0)
        return found

    def duration(self, first: int, last: int, *, least: int = 1) -> int:
        """The length of `INTERVAL '10' SECOND`, `INTERVAL '10 seconds'` or `10 SECONDS` in µs; `least` is in units."""
        words = [token.text for token in self.tokens[first : last + 1]]
        if words and words[0].upper() == "INTERVAL":
            words = words[1:]
        parts = " ".join(words).lower().split()
        if len(parts) == 2 and parts[0].isascii() and parts[0].isdigit():
            unit = UNITS_US.get(parts[1].removesuffix("s"))
            if unit is not None and int(parts[0]) >= least:
                return int(parts[0]) * unit
        raise self.error(
            "expected a length of whole units, such as INTERVAL '10' SECOND; months have no fixed length", first
        )

    def error(self, message: str, at: int) -> InvalidSql:
        """The error at a token, or at the statement's begin if all were removed."""
        index = min(max(at, 0), len(self.tokens) - 1)
        return self.error_at(message, self.tokens[index].start if self.tokens else self.start)

    def error_at(self, message: str, offset: int) -> InvalidSql:
        """The error at an offset in the text."""
        line, char = place_of(self.whole, offset)
        return InvalidSql(f"{message} (character {char})", line)


_SETS: Final = (("EXECUTE", "STATEMENT", "SET", "BEGIN"), ("BEGIN", "STATEMENT", "SET"))


def _without_sets(statements: Sequence[StatementText]) -> list[StatementText]:
    """The statements, with those in `EXECUTE STATEMENT SET BEGIN …; …; END` each on its own: a pipeline runs all of its
    statements together anyway. Raises InvalidSql for a set that has no end, and for an end without a set."""
    found: list[StatementText] = []
    begun: StatementText | None = None
    for statement in statements:
        if statement.words(0, "END") and len(statement.tokens) == 1:
            if begun is None:
                raise statement.error("this END ends no STATEMENT SET", 0)
            begun = None
            continue
        opening = next((len(words) for words in _SETS if statement.words(0, *words)), 0)
        if opening and begun is not None:
            raise statement.error("a STATEMENT SET in another one is not supported", 0)
        begun = statement if opening else begun
        if tokens := statement.tokens[opening:]:
            found.append(StatementText(statement.whole, tokens))
    if begun is not None:
        raise begun.error("this STATEMENT SET has no END;", 0)
    return found
