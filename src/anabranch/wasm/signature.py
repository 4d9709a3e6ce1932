"""Signatures of a module's functions: `score(celsius double, factor double) -> double`, or
`alerts(device string, celsius double) -> table (device string, text string)`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from anabranch import limits
from anabranch.core.schema_text import parse_type
from anabranch.errors import InvalidArgument
from anabranch.wasm.columns import NAMES, name_of

_SIGNATURE = re.compile(
    r"\s*(aggregate\s+)?(\w+)\s*\(([^()]*)\)\s*->\s*(?:(\w+)|table\s*\(([^()]*)\))\s*\Z", re.IGNORECASE
)
_NAMED_TYPE = re.compile(r"\s*(\w+)\s*:?\s+(\w+)\s*\Z|\s*(\w+)\s*:\s*(\w+)\s*\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_EXPECTED: Final = "expected NAME(COLUMN TYPE, …) -> TYPE, or -> TABLE (COLUMN TYPE, …)"


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """A function over columns: the names and types of its arguments, and the type of its result, which is a struct if it
    returns a table. An `aggregate` makes one value of the rows of each group."""

    name: str
    arguments: tuple[tuple[str, pa.DataType], ...]
    result: pa.DataType
    aggregate: bool = False

    @property
    def table(self) -> pa.Schema | None:
        """The columns of the table that it returns; None for a function that returns a value for each row, or each group."""
        return pa.schema(self.result.fields) if isinstance(self.result, pa.StructType) else None

    @property
    def types(self) -> tuple[object, ...]:
        """What a call depends on: all but the names, which are for people."""
        table = self.table
        results = (self.result,) if table is None else tuple(table.types)
        return self.aggregate, table is None, tuple(kind for _, kind in self.arguments), results

    def __str__(self) -> str:
        table = self.table
        result = (
            name_of(self.result) if table is None else f"table ({_columns(zip(table.names, table.types, strict=True))})"
        )
        return f"{'aggregate ' * self.aggregate}{self.name}({_columns(self.arguments)}) -> {result}"


def parse_signature(text: str) -> FunctionSignature:
    """The function that the text describes; `str` is the inverse. Raises InvalidArgument."""
    match = _SIGNATURE.match(text)
    if match is None:
        raise InvalidArgument(f"'{text:.200}' is not a signature: {_EXPECTED}")
    name, arguments = match[2], _named_types(match[3], text)
    if not 1 <= len(arguments) <= limits.MODULE_ARGUMENTS_MAX:
        raise InvalidArgument(
            f"{name} has {len(arguments)} arguments; a function has 1 to {limits.MODULE_ARGUMENTS_MAX}: {_EXPECTED}"
        )
    if len(name) > limits.NAME_CHARS_MAX or not _NAME.match(name):
        raise InvalidArgument(
            f"'{name:.200}' can't name a function: expected at most {limits.NAME_CHARS_MAX} letters, digits and '_'"
        )
    if match[4] is not None:
        return FunctionSignature(name, arguments, _kind(match[4]), bool(match[1]))
    if match[1]:
        raise InvalidArgument(f"{name} is an aggregate, which returns a value for each group and not a table")
    return FunctionSignature(name, arguments, pa.struct(_checked_columns(name, _named_types(match[5], text))))


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


def _columns(columns: Iterable[tuple[str, pa.DataType]]) -> str:
    return ", ".join(f"{name} {name_of(kind)}" for name, kind in columns)


def _checked_columns(name: str, columns: tuple[tuple[str, pa.DataType], ...]) -> tuple[tuple[str, pa.DataType], ...]:
    if not 1 <= len(columns) <= limits.MODULE_COLUMNS_MAX:
        raise InvalidArgument(
            f"the table of {name} has {len(columns)} columns; expected 1 to {limits.MODULE_COLUMNS_MAX}: {_EXPECTED}"
        )
    if len({column.lower() for column, _ in columns}) < len(columns):
        raise InvalidArgument(f"two columns of the table of {name} have the same name")
    return columns


def _named_types(text: str, whole: str) -> tuple[tuple[str, pa.DataType], ...]:
    return tuple(_named_type(each, whole) for each in text.split(",")) if text.strip() else ()


def _named_type(text: str, whole: str) -> tuple[str, pa.DataType]:
    match = _NAMED_TYPE.match(text)
    if match is None:
        raise InvalidArgument(f"'{text.strip():.200}' is not a name with a type in '{whole:.200}': {_EXPECTED}")
    return match[1] or match[3], _kind(match[2] or match[4])


def _kind(word: str) -> pa.DataType:
    kind = parse_type(word)
    if name_of(kind) is None:
        raise InvalidArgument(f"a module can't take or return {word}; expected {', '.join(NAMES)}")
    return kind
