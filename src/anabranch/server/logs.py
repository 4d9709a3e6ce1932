"""The log of a broker's processes, on stderr."""

from __future__ import annotations

import logging
import sys

from anabranch.core.redact import redacted


class _RedactedLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def log_to_stderr(level: str) -> None:
    """Write records of the store, the broker and its HTTP server from this level on to stderr, without passwords in
    addresses. For a process that is a broker; a program that embeds one sets its own handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactedLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name in ("anabranch", "uvicorn"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level.upper())
        logger.propagate = False
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger("anabranch").level))
