"""Makes text safe to print on a terminal: stored text must not move the cursor, or change the title or the
clipboard."""

from __future__ import annotations

from typing import Final

_JOINERS: Final = "\u200c\u200d\ufe0e\ufe0f"  # used within words of some scripts, and within emoji
_SPACES: Final = "\u00a0\u202f\u3000"


def terminal_text(text: str, *, lines: bool = False) -> str:
    """The text with every control character, and every invisible one that changes the direction of writing, as an escape:
    `\\x1b`, `\\u202e`. With `lines`, newlines and tabs stay; without, the text stays on one line."""
    if text.isprintable():
        return text
    kept = _JOINERS + _SPACES + ("\n\t" if lines else "")
    return "".join(char if char.isprintable() or char in kept else _escape(char) for char in text)


def terminal_json(text: str) -> str:
    """The JSON text with the same value, with all such characters escaped."""
    if text.isprintable():
        return text
    kept = _JOINERS + _SPACES + "\n"
    return "".join(char if char.isprintable() or char in kept else _json_escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
