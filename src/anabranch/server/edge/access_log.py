"""The access log: one JSON object on one line for each call that ended, without secrets.

The query of an address, headers and bodies are never logged, since they may hold a token.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec


class AccessLog:
    """Lines are gathered and written by `flush`, which the server calls several times a second: a terminal or pipe that
    takes nothing must not stop the calls. While it takes nothing at most `_LINES_MAX` lines wait; more are dropped, and
    their number is logged."""

    _LINES_MAX = 65_536

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._out = sys.stderr.buffer if out is None else out
        self._lock = threading.Lock()
        self._lines: deque[dict[str, Any]] = deque()  # `note` may be called while `flush` takes lines
        self._dropped = 0

    def note(self, **fields: Any) -> None:
        """Log a call with these fields; `at` is added. Control characters are escaped, as in all JSON."""
        if len(self._lines) >= self._LINES_MAX:
            self._dropped += 1
            return
        self._lines.append({"at": datetime.now(UTC), **fields})

    def flush(self) -> None:
        """Write the noted lines; waits if the reader is slow. Errors are ignored: then the log has no reader any more."""
        with self._lock:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if self._dropped:
                lines.append({"at": datetime.now(UTC), "dropped": self._dropped})
                self._dropped = 0
            if not lines:
                return
            try:
                self._out.write(msgspec.json.Encoder().encode_lines(lines))
                self._out.flush()
            except (OSError, ValueError):
                return
