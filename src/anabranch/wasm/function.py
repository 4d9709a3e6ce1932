"""A module's functions over Arrow columns: those that return a column, and those that return a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.errors import Closed
from anabranch.errors.optional import optional
from anabranch.wasm.engine import WasmEngine
from anabranch.wasm.instance import WasmInstance
from anabranch.wasm.signature import FunctionSignature

with optional("running WebAssembly modules", "wasm"):
    import wasmtime

BEGIN, UPDATE, FINISH = "_begin", "_update", "_finish"
"""The ends of the names of an aggregate's exports."""
END = "_end"
"""The end of the name of a table function's export that returns the last rows."""


class WasmFunction:
    """One function of a module. Thread-safe: calls run side by side, each in an instance of its own, at most
    `limits.MODULE_INSTANCES_MAX`. An instance is used for one call after another, and is discarded after an error."""

    def __init__(self, engine: WasmEngine, module: wasmtime.Module, signature: FunctionSignature) -> None:
        """`signature` is one that `check_module` has found in the module."""
        self._engine = engine
        self._module = module
        self.signature = signature
        self._changed = engine.tasks.condition()
        self._idle: list[WasmInstance] = []
        self._used = 0

    def __call__(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """The result for each row of the columns, which have the types of the signature; null where an argument is null.
        An aggregate takes lists of these types, of which each is a group; rows with a null are left out. Raises ModuleFailed, and Closed once the engine is closed."""
        instance = self._take()
        try:
            work = self._aggregate if self.signature.aggregate else self._map
            results = [work(instance, part) for part in _parts(columns)]
        except BaseException:
            self._put_back(None)
            if self._engine.closed:
                raise Closed("query") from None
            raise
        self._put_back(instance)
        return pa.chunked_array(results, self.signature.result)

    def _map(self, instance: WasmInstance, part: list[pa.Array]) -> pa.Array:
        return instance.call(self.signature.name, len(part[0]), part, self.signature.result)

    def _aggregate(self, instance: WasmInstance, part: list[pa.ListArray]) -> pa.Array:
        """Each row of the lists is a group."""
        name, groups = self.signature.name, len(part[0])
        instance.invoke(name + BEGIN, groups)
        rows = _rows_of_groups(part)
        for start in range(0, len(rows), limits.MODULE_ROWS_MAX):
            piece = [column.chunk(0) for column in rows.slice(start, limits.MODULE_ROWS_MAX).columns]
            instance.call(name + UPDATE, len(piece[0]), piece)
        return instance.call(name + FINISH, groups, (), self.signature.result)

    def _take(self) -> WasmInstance:
        with self._changed:
            while self._used >= limits.MODULE_INSTANCES_MAX:
                self._changed.wait()
            self._used += 1
            if self._idle:
                return self._idle.pop()
        try:
            return WasmInstance(self._engine, self._module, self.signature.name)
        except BaseException:
            self._put_back(None)
            raise

    def _put_back(self, instance: WasmInstance | None) -> None:
        with self._changed:
            self._used -= 1
            if instance is not None:
                self._idle.append(instance)
            self._changed.notify_all()


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


def _parts(columns: Sequence[pa.ChunkedArray]) -> Iterator[list[pa.Array]]:
    """The columns in pieces of at most `limits.MODULE_ROWS_MAX` rows, each without chunks."""
    if len(columns[0]) <= limits.MODULE_ROWS_MAX and all(column.num_chunks == 1 for column in columns):
        yield [column.chunk(0) for column in columns]  # as DuckDB hands them over
        return
    table = pa.table(list(columns), names=[str(number) for number in range(len(columns))])
    for start in range(0, len(table), limits.MODULE_ROWS_MAX):
        piece = table.slice(start, limits.MODULE_ROWS_MAX).combine_chunks()
        yield [column.chunk(0) for column in piece.columns]


def _rows_of_groups(lists: Sequence[pa.ListArray]) -> pa.Table:
    """The rows of all groups without those that have a null; the last column is the number of each row's group."""
    lengths = pc.fill_null(pc.list_value_length(lists[0]), 0).to_numpy()
    numbers = np.repeat(np.arange(len(lists[0]), dtype=np.uint32), lengths)
    columns = [*(each.flatten() for each in lists), pa.array(numbers)]
    rows = pa.table(columns, names=[str(number) for number in range(len(columns))])
    return rows.drop_null().combine_chunks() if any(each.null_count for each in columns) else rows
