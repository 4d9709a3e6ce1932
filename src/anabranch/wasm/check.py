"""Checks that a module has what its signatures say, without running any of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
from anabranch.wasm.engine import WasmEngine
from anabranch.wasm.function import BEGIN, END, FINISH, UPDATE
from anabranch.wasm.sections import custom_section
from anabranch.wasm.signature import FunctionSignature, parse_signatures

with optional("running WebAssembly modules", "wasm"):
    import wasmtime

SECTION: Final = "anabranch"
"""The custom section in which a module may hold its signatures, one a line."""

_NUMBER: Final = ("i32",)
_BATCH: Final = (_NUMBER, _NUMBER)


def check_module(engine: WasmEngine, code: bytes, signatures: Sequence[str] = ()) -> tuple[FunctionSignature, ...]:
    """The functions of a module, by the given signatures, or without any by the signatures in the module itself. Raises
    InvalidArgument for bytes that are not a module, a module that imports anything, one without these functions, and
    signatures with other types than those in the module."""
    module = engine.compile(code)
    found = parse_signatures(signatures or _own(code))
    if signatures and custom_section(code, SECTION) is not None:
        _compare(found, parse_signatures(_own(code)))
    for each in module.imports:
        raise InvalidArgument(
            f"the module imports {each.module}.{each.name}, but a module can't import anything: it may only compute"
        )
    exports = {each.name: each.type for each in module.exports}
    if not isinstance(exports.get("memory"), wasmtime.MemoryType):
        raise InvalidArgument("the module does not export its memory as 'memory'")
    _check(exports, "alloc", _NUMBER, _NUMBER, "takes a number of bytes and returns an address")
    if "free" in exports:
        _check(exports, "free", (*_NUMBER, *_NUMBER), (), "takes an address and a number of bytes")
    for signature in found:
        for name in exports_of(signature):
            takes = "a number of groups" if name.endswith(BEGIN) and signature.aggregate else "the address of a batch"
            _check(exports, name, *_BATCH, f"takes {takes} and returns 0")
        if signature.table is not None and signature.name + END in exports:
            _check(exports, signature.name + END, *_BATCH, "takes the address of a batch and returns 0")
    return found


def exports_of(signature: FunctionSignature) -> Iterator[str]:
    """The exports that do the function's work."""
    if not signature.aggregate:
        yield signature.name
        return
    for part in (BEGIN, UPDATE, FINISH):
        yield signature.name + part


def _compare(given: Iterable[FunctionSignature], own: Iterable[FunctionSignature]) -> None:
    known = {each.name: each for each in own}
    for each in given:
        module_s = known.get(each.name, each)
        if each.types != module_s.types:
            raise InvalidArgument(f"the module's function is {module_s}, not {each}")


def _own(code: bytes) -> list[str]:
    section = custom_section(code, SECTION)
    if section is None:
        raise InvalidArgument(
            "the signatures of the module's functions are missing: pass them, such as 'score(celsius double) -> double', "
            f"or put them into its custom section '{SECTION}', one per line"
        )
    try:
        return [line for line in section.decode().splitlines() if line.strip()]
    except UnicodeDecodeError as exc:
        raise InvalidArgument(f"the module's custom section '{SECTION}' is not UTF-8 text") from exc


def _check(
    exports: Mapping[str, object], name: str, parameters: Sequence[str], results: Sequence[str], means: str
) -> None:
    kind = exports.get(name)
    if kind is None:
        known = ", ".join(sorted(exports)) or "nothing"
        raise InvalidArgument(f"the module does not export the function '{name}', which {means}; it exports {known}")
    if not isinstance(kind, wasmtime.FuncType):
        raise InvalidArgument(f"the module's export '{name}' is not a function, but should be one that {means}")
    found = [str(each) for each in kind.params], [str(each) for each in kind.results]
    if found != (list(parameters), list(results)):
        shown = [f"({', '.join(each)})" for each in (*found, parameters, results)]
        raise InvalidArgument(
            f"the module's function '{name}' is {shown[0]} -> {shown[1]}, but {means}: {shown[2]} -> {shown[3]}"
        )
