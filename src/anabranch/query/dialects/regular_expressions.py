"""Regular expressions, parsed strictly: only syntax that Java, RE2 and the dialect interpret alike is translated.

Look-around, back-references, possessive quantifiers, flags, word boundaries and named classes are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from anabranch.query.dialects.calls import NotTranslated

_LENGTH_MAX: Final = 1_000
_DEPTH_MAX: Final = 20
_REPEATS_MAX: Final = 1_000
_PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_CONTROLS: Final = frozenset("tnrf")
_BREAKS: Final = r"\n\r\x{85}\x{2028}\x{2029}"
_JAVA_END: Final = rf"(?:\r\n|[{_BREAKS}])?\z"
_JONI_END: Final = r"\n?\z"
_WITH_RETURN: Final = re.compile(r"\[\^|\\[rsDW]|\r|\[(?:[^\]\\]|\\.)*[\0-\r]-")
"""Parts that can match a carriage return: the character itself, and classes that are negated, contain white space or have a
range that starts at or below it."""
_QUANTIFIER: Final = re.compile(r"[*+?]|\{([0-9]{1,4})(?:(,)([0-9]{1,4})?)?\}")
_JAVA: Final = frozenset({"flink", "ksqldb"})
_RUST: Final = frozenset({"risingwave", "materialize"})
"""Where `\\<` and `\\>` are word boundaries, and `~~` in a class is the symmetric difference."""
_UNICODE_CLASSES: Final = frozenset({"trino", *_RUST})
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_"}
_SPACES: Final = {"java": r" \t\n\x0B\f\r", "re2": r" \t\n\f\r"}


@dataclass(slots=True)
class Pattern:
    """A regular expression that means the same in DuckDB and in Spark."""

    text: str = ""
    groups: int = 0
    optional: set[int] = field(default_factory=set)
    """The groups that may take no part in a match."""
    empty: bool = False
    """Whether the pattern matches an empty text."""
    ends: str = ""
    """The translation of `$`: it also matches before a final line break if the dialect's does."""
    takes_returns: bool = False
    """Whether a part of the pattern can match a carriage return. Java's `$` does not match between `\\r` and `\\n`,
    which RE2 can't express."""

    def written(self, *, group: int | None = None, replaces: bool = False) -> str:
        """The pattern for both targets. Raises NotTranslated if the targets may differ in the text of this `group`, or, with
        `replaces`, in the matches to replace."""
        if group in self.optional:
            raise NotTranslated(
                f"group {group} of this pattern can be left out; write a pattern in which it always has a text"
            )
        if replaces and self.empty:
            raise NotTranslated("replacing what can be empty is not translated; write + instead of *")
        if self.ends not in ("", r"\z") and (replaces or group == 0 or (self.takes_returns and self.ends != _JONI_END)):
            raise NotTranslated(r"$ also matches before a last line break there, but not here; write \z")
        return self.text + self.ends


def read_pattern(text: str, dialect: str) -> Pattern:
    """Parse a pattern of a dialect. Raises NotTranslated, which names the part that is not translated."""
    if len(text) > _LENGTH_MAX:
        raise NotTranslated(f"a pattern of more than {_LENGTH_MAX:,} characters is not translated")
    return _Reader(text, dialect).read()


class _Reader:
    def __init__(self, text: str, dialect: str) -> None:
        self._text = text
        self._dialect = dialect
        self._at = 0
        self._found = Pattern()
        self._is_alternatives = False
        self._dot = f"[^{_BREAKS}]" if dialect in _JAVA else r"[^\n]"

    def read(self) -> Pattern:
        if not self._text:
            raise NotTranslated("an empty pattern is not translated")
        begins = self._take("^")
        self._take_end()
        written, self._found.empty = self._alternatives(depth=0)
        if self._at < len(self._text):
            raise self._refused()
        if (begins or self._found.ends) and self._is_alternatives:
            raise NotTranslated("^ or $ beside | is not translated; write (?:a|b) between them")
        self._found.takes_returns = _WITH_RETURN.search(self._text) is not None
        self._found.text = ("^" if begins else "") + written
        return self._found

    def _take(self, sign: str) -> bool:
        found = self._text.startswith(sign, self._at)
        self._at += len(sign) * found
        return found

    def _take_end(self) -> None:
        """Removes `$` or `\\z` from the end of the text."""
        stripped = self._text.removesuffix("$")
        slashes = len(stripped) - len(stripped.rstrip("\\"))
        if stripped != self._text and slashes % 2 == 0 and len(stripped) >= self._at:
            self._text = stripped
            self._found.ends = _JAVA_END if self._dialect in _JAVA else _JONI_END if self._dialect == "trino" else r"\z"
            return
        slashes = len(stripped[:-1]) - len(stripped[:-1].rstrip("\\"))
        if stripped.endswith(r"\z") and slashes % 2 == 1:
            self._text = stripped[:-2]
            self._found.ends = r"\z"

    def _refused(self) -> NotTranslated:
        return NotTranslated(
            f"'{self._text[self._at : self._at + 3]}' in a pattern is not translated; use letters, [ ], ( ), (?: ), |, ., "
            "* + ? { }, ^ at the begin and $ at the end"
        )

    def _alternatives(self, *, depth: int) -> tuple[str, bool]:
        if depth > _DEPTH_MAX:
            raise NotTranslated("this pattern is nested too deeply to be translated")
        first = self._found.groups + 1
        written, empty = self._sequence(depth)
        parts, empties = [written], [empty]
        while self._take("|"):
            written, empty = self._sequence(depth)
            parts.append(written)
            empties.append(empty)
        if len(parts) > 1:
            self._is_alternatives = self._is_alternatives or depth == 0
            self._found.optional.update(range(first, self._found.groups + 1))
        return "|".join(parts), any(empties)

    def _sequence(self, depth: int) -> tuple[str, bool]:
        written, empty = [], True
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            first = self._found.groups + 1
            atom, atom_empty = self._atom(depth)
            quantifier, least = self._quantifier()
            if quantifier and atom_empty:
                raise NotTranslated("repeating what can be empty is not translated; write + instead of * in it")
            if least == 0:
                self._found.optional.update(range(first, self._found.groups + 1))
            written.append(atom + quantifier)
            empty = empty and (atom_empty or least == 0)
        return "".join(written), empty

    def _quantifier(self) -> tuple[str, int]:
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            return "", 1
        least, comma, most = found.groups()
        if max(int(least or 0), int(most or 0)) > _REPEATS_MAX or (most and int(most) < int(least)):
            raise self._refused()
        self._at = found.end()
        lazy = "?" if self._take("?") else ""
        if self._text[self._at : self._at + 1] in ("+", "*", "?", "{") and self._at < len(self._text):
            raise self._refused()
        if least is None:
            return found.group() + lazy, int(found.group() == "+")
        return "{" + least + (comma or "") + (most or "") + "}" + lazy, int(least)

    def _atom(self, depth: int) -> tuple[str, bool]:
        sign = self._text[self._at]
        if sign == "(":
            return self._group(depth)
        if sign == "[":
            return self._class(), False
        if sign == "\\":
            return self._escape(inside=False), False
        if sign in "*+?{}]^$":
            raise self._refused()
        self._at += 1
        return self._dot if sign == "." else sign, False

    def _group(self, depth: int) -> tuple[str, bool]:
        opening = "(?:" if self._take("(?:") else "("
        if opening == "(":
            if self._text.startswith("(?", self._at):
                raise self._refused()
            self._at += 1
            self._found.groups += 1
        written, empty = self._alternatives(depth=depth + 1)
        if not self._take(")"):
            raise NotTranslated("a ( in this pattern is never closed")
        return f"{opening}{written})", empty

    def _class(self) -> str:
        self._at += 1
        written = "[^" if self._take("^") else "["
        begin = self._at
        while not self._text.startswith("]", self._at) or self._at == begin:
            if self._at >= len(self._text) or self._text[self._at] in "[]" or self._begins_operator():
                raise self._refused()
            written += self._member()
        self._at += 1
        return written + "]"

    def _begins_operator(self) -> bool:
        """True at an operator between classes: `&&`, and `~~` of Rust."""
        operator = self._text[self._at : self._at + 2]
        return operator == "&&" or (operator == "~~" and self._dialect in _RUST)

    def _member(self) -> str:
        low, single = self._single()
        if not single or not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return low
        self._at += 1
        if self._at >= len(self._text) or self._text[self._at] in "[]-":
            raise self._refused()
        high, single = self._single()
        if not single or len(low + high) != 2 or high < low:
            raise self._refused()
        return f"{low}-{high}"

    def _single(self) -> tuple[str, bool]:
        """A member of a class, and whether it is one character."""
        sign = self._text[self._at]
        if sign == "\\":
            written = self._escape(inside=True)
            return written, len(written) == 2
        self._at += 1
        return (f"\\{sign}" if sign in "^-&~" else sign), True

    def _escape(self, *, inside: bool) -> str:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in ("<", ">") and self._dialect in _RUST:
            raise self._refused()
        if letter and (letter in _PUNCTUATION or letter in _CONTROLS):
            self._at += 2
            return "\\" + letter
        members = _CLASSES.get(letter.lower())
        if letter in ("s", "S"):
            members = _SPACES["java" if self._dialect in _JAVA else "re2"]
        if not members or (inside and letter.isupper()):
            raise self._refused()
        if self._dialect in _UNICODE_CLASSES:
            raise NotTranslated(
                f"\\{letter} also matches characters beyond ASCII there; write a class such as [0-9] or [A-Za-z]"
            )
        self._at += 2
        return members if inside else f"[{'^' if letter.isupper() else ''}{members}]"
