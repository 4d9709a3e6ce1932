"""Checks the code of a pipeline against the functions that it declares. Nothing of the code runs. Uses no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.deployments.files import kind_of_file, unpacked_wheels
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.runtime.tasks import ThreadTasks
from anabranch.spark.pipelines.functions.declared import DeclaredFunction, wasm_signature

__all__ = ["check_code"]


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
