"""Signatures of a module's functions: `score(celsius double, factor double) -> double`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from anabranch import limits
from anabranch.core.schema_text import parse_type
from anabranch.errors import InvalidArgument
from anabranch.wasm.columns import NAMES, name_of

_SIGNATURE = re.compile(r"\s*(aggregate\s+)?(\w+)\s*\(([^()]*)\)\s*->\s*(\w+)\s*\Z", re.IGNORECASE)
_ARGUMENT = re.compile(r"\s*(\w+)\s*:?\s+(\w+)\s*\Z|\s*(\w+)\s*:\s*(\w+)\s*\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_EXPECTED: Final = "expected NAME(COLUMN TYPE, …) -> TYPE"


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """A function over columns: the names and types of its arguments, and the type of its result. An `aggregate` makes one
    value of the rows of each group."""

    name: str
    arguments: tuple[tuple[str, pa.DataType], ...]
    result: pa.DataType
    aggregate: bool = False

    def __str__(self) -> str:
        arguments = ", ".join(f"{name} {name_of(kind)}" for name, kind in self.arguments)
        return f"{'aggregate ' * self.aggregate}{self.name}({arguments}) -> {name_of(self.result)}"


def parse_signature(text: str) -> FunctionSignature:
    """The function that the text describes; `str` is the inverse. Raises InvalidArgument."""
    match = _SIGNATURE.match(text)
    if match is None:
        raise InvalidArgument(f"'{text:.200}' is not a signature: {_EXPECTED}")
    name, listed = match[2], [each for each in match[3].split(",") if match[3].strip()]
    arguments = tuple(_argument(each, text) for each in listed)
    if not 1 <= len(arguments) <= limits.MODULE_ARGUMENTS_MAX:
        raise InvalidArgument(
            f"{name} has {len(arguments)} arguments; a function has 1 to {limits.MODULE_ARGUMENTS_MAX}: {_EXPECTED}"
        )
    if len(name) > limits.NAME_CHARS_MAX or not _NAME.match(name):
        raise InvalidArgument(
            f"'{name:.200}' can't name a function: expected at most {limits.NAME_CHARS_MAX} letters, digits and '_'"
        )
    return FunctionSignature(name, arguments, _kind(match[4]), bool(match[1]))


def parse_signatures(texts: Sequence[str]) -> tuple[FunctionSignature, ...]:
    """Those of one module. Raises InvalidArgument, also if two functions have names that differ only in case, as SQL
    does not tell them apart."""
    if not 1 <= len(texts) <= limits.MODULE_FUNCTIONS_MAX:
        raise InvalidArgument(f"expected 1 to {limits.MODULE_FUNCTIONS_MAX} functions in a module, got {len(texts)}")
    found: dict[str, FunctionSignature] = {}
    for signature in map(parse_signature, texts):
        if found.setdefault(signature.name.lower(), signature) is not signature:
            raise InvalidArgument(f"the module has two functions called {signature.name.lower()}")
    return tuple(found.values())


def _argument(text: str, whole: str) -> tuple[str, pa.DataType]:
    match = _ARGUMENT.match(text)
    if match is None:
        raise InvalidArgument(f"'{text.strip():.200}' is not an argument in '{whole:.200}': {_EXPECTED}")
    return match[1] or match[3], _kind(match[2] or match[4])


def _kind(word: str) -> pa.DataType:
    kind = parse_type(word)
    if name_of(kind) is None:
        raise InvalidArgument(f"a module can't take or return {word}; expected {', '.join(NAMES)}")
    return kind
