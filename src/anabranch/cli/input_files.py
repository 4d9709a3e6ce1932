"""Reads what is given as a file and is needed as a whole: SQL, wheels, modules, signatures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
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


def read_module(file: Path) -> bytes:
    """The bytes of FILE.wasm, or those that FILE.wat stands for as text. Raises InvalidArgument, MissingExtra."""
    is_text = file.suffix.lower() == ".wat"
    bytes_max = limits.MODULE_TEXT_BYTES_MAX if is_text else limits.MODULE_BYTES_MAX
    code = read_bytes(file, what="the module", bytes_max=bytes_max)
    if not is_text:
        return code
    with optional("reading WebAssembly as text", "wasm"):
        import wasmtime
    try:
        return bytes(wasmtime.wat2wasm(code))
    except wasmtime.WasmtimeError as exc:
        raise InvalidArgument(f"{file} is not WebAssembly as text: {' '.join(str(exc).split())}") from exc


def _unreadable(what: str, name: str, exc: OSError) -> InvalidArgument:
    return InvalidArgument(f"{what} can't be read: {name:.300}: {exc.strerror or exc}")
