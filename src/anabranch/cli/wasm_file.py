"""Reads WebAssembly modules from files."""

from __future__ import annotations

from pathlib import Path

from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional


def read_module(file: Path) -> bytes:
    """The bytes of FILE.wasm, or those that FILE.wat stands for as text. Raises InvalidArgument, MissingExtra."""
    try:
        code = file.read_bytes()
    except OSError as exc:
        raise InvalidArgument(f"the module can't be read: {exc}") from exc
    if file.suffix.lower() != ".wat":
        return code
    with optional("reading WebAssembly as text", "wasm"):
        import wasmtime
    try:
        return bytes(wasmtime.wat2wasm(code))
    except wasmtime.WasmtimeError as exc:
        raise InvalidArgument(f"{file} is not WebAssembly as text: {' '.join(str(exc).split())}") from exc
