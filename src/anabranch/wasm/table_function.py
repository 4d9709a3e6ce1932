"""A module's function that returns a table, over the batches of a micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors.optional import optional
from anabranch.wasm.engine import WasmEngine
from anabranch.wasm.instance import WasmInstance
from anabranch.wasm.signature import FunctionSignature

with optional("running WebAssembly modules", "wasm"):
    import wasmtime

END: Final = "_end"
"""The end of the name of the export that returns the last rows."""


class WasmTableFunction:
    """One function of a module that makes rows of rows. Thread-safe: each call has an instance of its own."""

    def __init__(self, engine: WasmEngine, module: wasmtime.Module, signature: FunctionSignature) -> None:
        """`signature` is one with a table that `check_module` has found in the module."""
        self._engine = engine
        self._module = module
        self._name = signature.name
        self._has_end = any(each.name == signature.name + END for each in module.exports)
        self._takes = pa.schema(list(signature.arguments))
        table = signature.table
        assert table is not None, "its signature has a table"
        self.schema = table

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that it makes of these, which have its arguments as columns, in their order, of types that become those of
        the signature. Without rows it is not called. What it keeps in its memory is gone afterwards. Raises ModuleFailed."""
        instance: WasmInstance | None = None
        given = 0
        for batch in batches:
            for start in range(0, batch.num_rows, limits.MODULE_ROWS_MAX):
                piece = batch.slice(start, limits.MODULE_ROWS_MAX)
                columns = [column.cast(kind) for column, kind in zip(piece.columns, self._takes.types, strict=True)]
                instance = instance or WasmInstance(self._engine, self._module, self._name)
                yield instance.call_table(self._name, piece.num_rows, columns, self.schema)
                given += piece.num_rows
        if instance is not None and self._has_end:
            yield instance.call_table(self._name + END, 0, (), self.schema, work=given)
