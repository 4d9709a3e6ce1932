"""Functions as Spark's Python workers call them. Only here is the code of a wheel imported, and never in the driver.

The code of a query is an archive that Spark unpacks on each machine: `python/`, which comes first on the path of modules,
and `resources/`. Without an archive, modules are those that are installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from anabranch.core.python_rows import refuse_loss
from anabranch.errors import FunctionFailed, InvalidArgument
from anabranch.model.times import TimeRules
from anabranch.runtime.tasks import ThreadTasks

__all__ = [
    "PYTHON",
    "RESOURCES",
    "FunctionTarget",
    "arrow_call",
    "batch_call",
    "pandas_call",
    "resource",
    "wasm_batch_call",
    "wasm_call",
]

PYTHON: Final = "python"
RESOURCES: Final = "resources"
_BATCH: Final = "streaming.sql.batchId"
_RULES: Final = TimeRules("UTC")  # as Arrow takes times without a zone
_current: list[Path] = []  # the unpacked code whose modules are those of `sys.modules`, if any
_modules: dict[Path, dict[str, ModuleType]] = {}  # modules of code that this worker called before, by its folder


@dataclass(frozen=True, slots=True)
class FunctionTarget:
    """A Python function by its module, in the archive of this name. `name` is what SQL calls it."""

    name: str
    archive: str | None
    module: str
    function: str

    def call(self, *arguments: Any) -> Any:
        """Call it. Raises FunctionFailed."""
        found = _loaded(self)
        try:
            return found(*arguments)
        except Exception as exc:
            raise FunctionFailed(self.name, f"{type(exc).__name__}: {exc}") from exc


def resource(name: str) -> Path:
    """The path of a file that the query was deployed with (`--resource`). For functions of its wheel, also while their
    module is imported. Raises InvalidArgument for another name, and where no query calls."""
    if not _current:
        raise InvalidArgument(f"the resource '{name}' can be read only by a function that a deployed query calls")
    folder = _current[0] / RESOURCES
    found = folder / name
    if found.parent != folder or not found.is_file():
        known = ", ".join(sorted(each.name for each in folder.iterdir())) if folder.is_dir() else ""
        raise InvalidArgument(f"the query has no resource '{name}'; it has: {known or 'none'}")
    return found


def pandas_call(target: FunctionTarget) -> Callable[..., pd.Series[Any]]:
    """The function as Spark calls it with pandas Series, one for each argument. It returns one value for each row."""

    def call(*columns: pd.Series) -> pd.Series:  # Spark reads these hints
        found = target.call(*columns)
        series = _series(found)
        _check_rows(target.name, series, len(columns[0]))
        return series

    return call


def arrow_call(target: FunctionTarget, result: pa.DataType) -> Callable[..., pa.Array]:
    """The function as Spark calls it with Arrow arrays, one for each argument. It returns one value for each row; they are
    cast to the type `result`."""

    def call(*columns: pa.Array) -> pa.Array:
        found = target.call(*columns)
        _check_rows(target.name, found, len(columns[0]))
        return _of_type(target.name, found, result)

    return call


def batch_call(target: FunctionTarget, schema: pa.Schema, given: pa.Schema, *, arrow: bool) -> Callable[..., Any]:
    """The function as Spark calls it with all rows of a micro-batch, of the columns `given`. It gets them as one Arrow
    table, or without `arrow` as a pandas DataFrame, and the batch's number; it is not called for a batch without rows. It
    returns rows: a table or DataFrame with the columns of `schema`, or mappings; None for no rows."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches([each for each in batches if each.num_rows], given)
        if table.num_rows:
            found = target.call(table if arrow else table.to_pandas(), _batch())
            yield from _rows(target.name, found, schema).to_batches()

    return call


def wasm_call(name: str, code: bytes, signature: str) -> Callable[..., pa.Array]:
    """A function of a WebAssembly module over Arrow arrays."""

    def call(*columns: pa.Array) -> pa.Array:
        function = _wasm_function(code, signature)
        kinds = [kind for _, kind in function.signature.arguments]
        cast = [pa.chunked_array([each.cast(kind)], kind) for each, kind in zip(columns, kinds, strict=True)]
        if not len(columns[0]):
            return pa.array([], function.signature.result)
        made: pa.Array = function(cast).combine_chunks()
        return made

    call.__name__ = name
    return call


def wasm_batch_call(code: bytes, signature: str, schema: pa.Schema) -> Callable[..., Any]:
    """A function of a WebAssembly module over the rows of a micro-batch, which it gets batch by batch. It returns rows
    with the columns of the schema."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for made in _wasm_function(code, signature, of_tables=True)(batches):
            yield from pa.Table.from_batches([made]).cast(schema).to_batches()

    return call


def _batch() -> int:
    """The number of the micro-batch that is processed; 0 outside of streams."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.getLocalProperty(_BATCH) or 0)


@cache
def _wasm_function(code: bytes, signature: str, *, of_tables: bool = False) -> Any:
    """A WasmFunction, or a WasmTableFunction."""
    from anabranch.wasm.engine import WasmEngine
    from anabranch.wasm.function import WasmFunction, WasmTableFunction
    from anabranch.wasm.signature import parse_signature

    engine = WasmEngine(ThreadTasks())
    return (WasmTableFunction if of_tables else WasmFunction)(engine, engine.compile(code), parse_signature(signature))


def _loaded(target: FunctionTarget) -> Callable[..., Any]:
    root = [] if target.archive is None else [_unpacked(target.archive)]
    if root != _current:
        _switch(root)
    return _imported(target)


@cache
def _unpacked(archive: str) -> Path:
    from pyspark import SparkFiles

    return Path(SparkFiles.get(archive))


def _switch(root: list[Path]) -> None:
    """Make the modules of this code importable, instead of those of the code that was called last."""
    for old in _current:
        sys.path.remove(str(old / PYTHON))
        inside = [name for name, module in [*sys.modules.items()] if _is_in(module, old)]
        _modules[old] = {name: sys.modules.pop(name) for name in inside}
    _current[:] = root
    for new in root:
        sys.path.insert(0, str(new / PYTHON))
        sys.modules.update(_modules.pop(new, {}))
    importlib.invalidate_caches()


def _is_in(module: ModuleType, root: Path) -> bool:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(isinstance(place, str) and Path(place).is_relative_to(root) for place in places)


@cache
def _imported(target: FunctionTarget) -> Callable[..., Any]:
    try:
        found = getattr(importlib.import_module(target.module), target.function)
    except Exception as exc:  # whatever a module does while it is imported
        raise FunctionFailed(target.name, f"{type(exc).__name__}: {exc}") from exc
    if not callable(found):
        raise FunctionFailed(target.name, f"{target.module}:{target.function} is not a function")
    made: Callable[..., Any] = found
    return made


def _series(found: Any) -> pd.Series[Any]:
    """The values as a Series. pandas would turn integers beside nulls into floats, which rounds large ones."""
    if isinstance(found, pd.Series):
        return found
    if isinstance(found, pa.Array | pa.ChunkedArray):
        return pd.Series(found.to_pandas(integer_object_nulls=True))
    series = pd.Series(found)
    if series.dtype.kind == "f" and isinstance(found, list | tuple) and any(isinstance(each, int) for each in found):
        return pd.Series(found, dtype=object)
    return series


def _check_rows(name: str, found: Any, wanted: int) -> None:
    try:
        count = len(found)
    except TypeError:
        raise FunctionFailed(name, f"expected a value for each row, it returned {type(found).__name__}") from None
    if count != wanted:
        raise FunctionFailed(name, f"it returned {count:,} values for {wanted:,} rows")


def _of_type(name: str, found: Any, kind: pa.DataType) -> pa.Array:
    try:
        array = found if isinstance(found, pa.Array | pa.ChunkedArray) else pa.array(found)
        array = array.cast(kind)
        return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
        raise FunctionFailed(name, f"its result does not fit the type {kind}: {exc}") from exc


def _rows(name: str, found: Any, schema: pa.Schema) -> pa.Table:
    if found is None:
        return schema.empty_table()
    try:
        if isinstance(found, pa.RecordBatch):
            found = pa.Table.from_batches([found])
        if isinstance(found, pd.DataFrame):
            return pa.Table.from_pandas(found, schema, preserve_index=False)
        if isinstance(found, pa.Table):
            return found.select(schema.names).cast(schema)
        return pa.Table.from_pylist(_mappings(found, schema), schema)
    except (pa.ArrowException, KeyError, OverflowError, TypeError, ValueError) as exc:
        raise FunctionFailed(name, f"its rows do not fit the columns {', '.join(schema.names)}: {exc}") from exc


def _mappings(found: Iterable[Any], schema: pa.Schema) -> list[Mapping[str, Any]]:
    rows = list(found)
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeError(f"expected mappings, got {type(row).__name__}")
        for field in schema:
            refuse_loss(row.get(field.name), field.type, _RULES)
    return rows
