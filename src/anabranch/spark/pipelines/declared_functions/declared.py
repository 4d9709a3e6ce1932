"""Functions as a file of statements declares them. Pure: nothing of their code runs.

Spark knows a function by a name of its own, which has a digest of its declaration and its code in it. So a statement that
calls a function with other code is another statement, for everything that compares statements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from anabranch.deployments.files import kind_of_file, unpacked_wheels
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.runtime.tasks import ThreadTasks

__all__ = ["SPARK_PREFIX", "DeclaredFunction", "Language", "check_code", "wasm_signature", "without_spark_names"]


Language: TypeAlias = Literal["PYTHON", "ARROW", "WASM"]
"""`PYTHON`: columns as pandas Series; `ARROW`: as Arrow arrays; `WASM`: the function of a WebAssembly module."""

# The types of SQL that modules can take and return, by their names there.
_WASM_TYPES: Final[Mapping[str, str]] = {
    "BOOLEAN": "boolean",
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INT": "int32",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "FLOAT": "float32",
    "DOUBLE": "double",
    "TIMESTAMP": "timestamp",
    "DATE": "date",
    "STRING": "string",
    "BINARY": "binary",
}
SPARK_PREFIX: Final = "anabranch_fn_"
_SPARK_NAME: Final = re.compile(rf"\b{SPARK_PREFIX}[0-9a-f]{{12}}_")


@dataclass(frozen=True, slots=True)
class DeclaredFunction:
    """A function as declared on `line`. `arguments` have names and SQL types. It returns a value of the SQL type `result`
    for each row, or a table with `columns`, which have names and types too: then it handles whole micro-batches.
    `spark_name` is what Spark knows it by, and `archive` the name of the unpacked code, if it was deployed with Python code."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    result: str | None
    columns: tuple[tuple[str, str], ...]
    language: Language
    module: str
    function: str
    line: int
    spark_name: str
    archive: str | None

    @property
    def of_batches(self) -> bool:
        """True if it handles micro-batches; else it is called in SQL."""
        return self.result is None


def wasm_signature(function: DeclaredFunction) -> str:
    """The signature of a module's function; see `anabranch.wasm.signature`. Raises InvalidSql for types that modules don't
    know."""
    returns = f"table ({_wasm_columns(function, function.columns)})"
    if function.result is not None:
        returns = _wasm_type(function, function.result)
    return f"{function.function}({_wasm_columns(function, function.arguments)}) -> {returns}"


def _wasm_columns(function: DeclaredFunction, columns: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} {_wasm_type(function, kind)}" for name, kind in columns)


def _wasm_type(function: DeclaredFunction, kind: str) -> str:
    found = _WASM_TYPES.get(kind.upper())
    if found is None:
        raise InvalidSql(
            f"a WebAssembly module can't take or return {kind}; expected {', '.join(_WASM_TYPES)}", line=function.line
        )
    return found


def without_spark_names(text: str) -> str:
    """A message about SQL, with the functions by the names in the file."""
    return _SPARK_NAME.sub("", text)


def check_code(functions: Iterable[DeclaredFunction], files: Mapping[str, bytes]) -> None:
    """Check that the files, by name, have the code of these functions. Nothing of it runs. Raises InvalidSql with the line,
    InvalidArgument."""
    paths = unpacked_wheels(files).keys()
    for function in functions:
        path = function.module.replace(".", "/")
        if function.language == "WASM":
            _check_module(function, files)
        elif not {f"{path}.py", f"{path}/__init__.py"} & paths:
            have = ", ".join(sorted(name for name in files if kind_of_file(name) == "wheel"))
            raise InvalidSql(
                f"there is no module '{function.module}' for '{function.name}': expected it in a wheel of the query, which has: "
                f"{have or 'none'}",
                line=function.line,
            )


def _check_module(function: DeclaredFunction, files: Mapping[str, bytes]) -> None:
    from anabranch.wasm.check import check_module
    from anabranch.wasm.engine import WasmEngine

    code = files.get(f"{function.module}.wasm")
    if code is None:
        have = ", ".join(sorted(name for name in files if kind_of_file(name) == "wasm"))
        raise InvalidSql(
            f"there is no module '{function.module}.wasm' for '{function.name}'; the query has: {have or 'none'}",
            line=function.line,
        )
    engine = WasmEngine(ThreadTasks())
    try:
        check_module(engine, code, [wasm_signature(function)])
    except InvalidArgument as exc:
        raise InvalidSql(f"{function.module}.wasm: {exc}", line=function.line) from exc
    finally:
        engine.close()
