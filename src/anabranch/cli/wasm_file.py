"""Reads WebAssembly modules from files."""

from __future__ import annotations

from pathlib import Path

from anabranch import limits
from anabranch.cli.input_files import read_bytes
from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional


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
