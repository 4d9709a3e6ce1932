"""Reads what is given as a file and is needed as a whole: SQL, wheels, modules, signatures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from anabranch.errors import InvalidArgument
from anabranch.runtime.bounded_files import read_bounded, read_whole, to_text

_STDIN: Final = Path("-")


def read_bytes(path: Path, *, what: str, bytes_max: int) -> bytes:
    """The content of a file or pipe, which is called `what` in messages. Raises InvalidArgument where `read_bounded` raises
    OSError."""
    try:
        return read_bounded(path, bytes_max)
    except OSError as exc:
        raise _unreadable(what, str(path), exc) from exc


def read_text(path: Path, *, what: str, bytes_max: int) -> str:
    """The same of text, which is UTF-8, with or without a byte order mark; `-` is stdin."""
    try:
        if path == _STDIN:
            return to_text(read_whole(sys.stdin.buffer.read, bytes_max))
        return to_text(read_bounded(path, bytes_max))
    except OSError as exc:
        raise _unreadable(what, "stdin" if path == _STDIN else str(path), exc) from exc


def read_sql(sql: str | None, file: Path | None, *, what: str, bytes_max: int) -> str:
    """The SQL that is given as an argument, where `-` is stdin, or in a file. Raises InvalidArgument if it is given in
    both ways or in neither."""
    if (sql is None) == (file is None):
        raise InvalidArgument(f"pass either {what} or --file")
    if file is None and sql != "-":
        return str(sql)
    return read_text(file or _STDIN, what=what, bytes_max=bytes_max)


def _unreadable(what: str, name: str, exc: OSError) -> InvalidArgument:
    return InvalidArgument(f"{what} can't be read: {name:.300}: {exc.strerror or exc}")
