"""A module's function as a function over Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from anabranch import limits
from anabranch.errors import Closed
from anabranch.errors.optional import optional
from anabranch.wasm.engine import WasmEngine
from anabranch.wasm.instance import WasmInstance
from anabranch.wasm.signature import FunctionSignature

with optional("running WebAssembly modules", "wasm"):
    import wasmtime


class WasmFunction:
    """One function of a module. Thread-safe: calls run side by side, each in an instance of its own, at most
    `limits.MODULE_INSTANCES_MAX`. An instance is used for one call after another, and is discarded after an error."""

    def __init__(self, engine: WasmEngine, module: wasmtime.Module, signature: FunctionSignature) -> None:
        """`signature` is one that `check_module` has found in the module."""
        self._engine = engine
        self._module = module
        self._signature = signature
        self._changed = engine.tasks.condition()
        self._idle: list[WasmInstance] = []
        self._used = 0

    def __call__(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """The result for each row of the columns, which have the types of the signature; null where an argument is null.
        Raises ModuleFailed, and Closed once the engine is closed."""
        name, kind = self._signature.name, self._signature.result
        instance = self._take()
        try:
            results = [instance.call(name, len(part[0]), part, kind) for part in _parts(columns)]
        except BaseException:
            self._put_back(None)
            if self._engine.closed:
                raise Closed("query") from None
            raise
        self._put_back(instance)
        return pa.chunked_array(results, kind)

    def _take(self) -> WasmInstance:
        with self._changed:
            while self._used >= limits.MODULE_INSTANCES_MAX:
                self._changed.wait()
            self._used += 1
            if self._idle:
                return self._idle.pop()
        try:
            return WasmInstance(self._engine, self._module, self._signature.name)
        except BaseException:
            self._put_back(None)
            raise

    def _put_back(self, instance: WasmInstance | None) -> None:
        with self._changed:
            self._used -= 1
            if instance is not None:
                self._idle.append(instance)
            self._changed.notify_all()


def _parts(columns: Sequence[pa.ChunkedArray]) -> Iterator[list[pa.Array]]:
    """The columns in pieces of at most `limits.MODULE_ROWS_MAX` rows, each without chunks."""
    if len(columns[0]) <= limits.MODULE_ROWS_MAX and all(column.num_chunks == 1 for column in columns):
        yield [column.chunk(0) for column in columns]  # as DuckDB hands them over
        return
    table = pa.table(list(columns), names=[str(number) for number in range(len(columns))])
    for start in range(0, len(table), limits.MODULE_ROWS_MAX):
        piece = table.slice(start, limits.MODULE_ROWS_MAX).combine_chunks()
        yield [column.chunk(0) for column in piece.columns]
