"""Reads the tokens of one statement from left to right. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn

from sqlglot import Token, TokenType

from anabranch.errors import InvalidName, InvalidSql
from anabranch.model.names import StreamName
from anabranch.spark.pipelines.sql_tokens import value_at, word_of

__all__ = ["Cursor"]

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NO_VALUES: Final[Mapping[str, Any]] = MappingProxyType({})


class Cursor:
    """A place, `at`, among the tokens of a statement in a text. `values` are those of the parameters that the file declares."""

    def __init__(
        self, text: str, tokens: Sequence[Token], values: Mapping[str, Any] = _NO_VALUES, *, at: int = 0
    ) -> None:
        self.text = text
        self.tokens = tokens
        self.values = values
        self.at = at

    def peek(self) -> Token | None:
        """The token at the place; None at the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def word(self) -> str:
        """The word at the place, as `word_of` has it."""
        return word_of(self.peek())

    def word_at(self, index: int) -> str:
        """The word at `index`; empty after the last token."""
        return word_of(self.tokens[index]) if index < len(self.tokens) else ""

    def take(self, word: str) -> bool:
        """Step over this word, if it is at the place."""
        if self.word() != word:
            return False
        self.at += 1
        return True

    def fail(self, message: str, *, at: int | None = None) -> NoReturn:
        """Raise InvalidSql with the line of the place, or of the token at `at`."""
        index = min(self.at if at is None else at, len(self.tokens) - 1)
        raise InvalidSql(message, line=self.tokens[index].line)

    def text_of(self, first: int, after: int) -> str:
        """The text of the tokens from `first` to before `after`."""
        return self.text[self.tokens[first].start : self.tokens[after - 1].end + 1] if first < after else ""

    def kind_at(self, index: int) -> TokenType | None:
        """The type of the token at `index`; None after the last one."""
        return self.tokens[index].token_type if index < len(self.tokens) else None

    def value(self) -> object:
        """Step over a number, a text or a parameter, and return its value; None for anything else."""
        value, self.at = value_at(self.tokens, self.at, self.values)
        return value

    def name_at(self, index: int) -> str | None:
        """The name at `index`, quoted or not. Keywords count: they are valid names of scopes and streams."""
        if index >= len(self.tokens):
            return None
        token = self.tokens[index]
        if token.token_type is TokenType.IDENTIFIER:
            return token.text
        return token.text if token.token_type is not TokenType.STRING and _WORD.match(token.text) else None

    def is_dot(self, index: int) -> bool:
        """True if the token at `index` is a dot."""
        return self.kind_at(index) is TokenType.DOT

    def two_parts_at(self, index: int) -> tuple[str, str] | None:
        """The parts of the name at `index`, if it has two."""
        scope = self.name_at(index)
        if scope is None or not self.is_dot(index + 1) or self.is_dot(index + 3):
            return None
        name = self.name_at(index + 2)
        return None if name is None else (scope, name)

    def stream_name(self, after: str) -> StreamName:
        """Step over the name of a stream, which stands after `after`. Raises InvalidSql."""
        parts = self.two_parts_at(self.at)
        if parts is None:
            self.fail(
                f"expected scope.name after {after}; quote parts that are not plain words: `my-scope`.`my-stream`"
            )
        try:
            name = StreamName.parse("/".join(parts))
        except InvalidName as exc:
            raise InvalidSql(str(exc), line=self.tokens[self.at].line) from exc
        end = self.tokens[self.at + 2].end
        self.at += 3
        following = self.peek()
        # Otherwise `iot.my-stream` would be read as `iot.my` and a stray minus.
        if (
            following is not None
            and following.start == end + 1
            and following.token_type in (TokenType.DASH, TokenType.SLASH)
        ):
            self.fail(f"quote names that are not plain words: {parts[0]}.`{parts[1]}{following.text}…`")
        return name

    def parameter_at(self, index: int) -> str | None:
        """The parameter of `:name` at `index`. Raises InvalidSql for one that is not declared."""
        if index + 1 >= len(self.tokens) or self.tokens[index].token_type is not TokenType.COLON:
            return None
        name = self.name_at(index + 1)
        if name is None or self.tokens[index + 1].start != self.tokens[index].end + 1:
            return None
        if name not in self.values:
            self.fail(f"parameter ':{name}' is not declared: DECLARE PARAMETER {name} TYPE;", at=index)
        return name
