"""`Secret`: text that must not be shown."""

from __future__ import annotations

import hmac
from typing import Final, NoReturn

SHOWN: Final = "Secret(…)"


class Secret:
    """Text that neither `repr`, `str`, a log line, a traceback's locals nor a pickle reveals; `reveal` returns it.
    Secrets compare in constant time, and are not hashable."""

    __slots__ = ("_text",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text."""
        return self._text

    def __repr__(self) -> str:
        return SHOWN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(SHOWN, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret can't be pickled: pass its location instead")
