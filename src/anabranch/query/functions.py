"""Functions of the store's WebAssembly modules in queries: `wasm.score(celsius)`, or `score(celsius)` where DuckDB has no
function of that name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from anabranch.catalog.state.module_version import ModuleVersion
from anabranch.query.python_functions import create_function, create_macro
from anabranch.query.scan import Scans
from anabranch.store import Store
from anabranch.wasm.signature import FunctionSignature, parse_signature

if TYPE_CHECKING:
    import duckdb

    from anabranch.wasm.engine import WasmEngine

SCHEMA: Final = "wasm"


class ModuleFunctions:
    """The modules' functions in one database: those that a query names are registered before it runs. Close it."""

    def __init__(self, store: Store, database: duckdb.DuckDBPyConnection, scans: Callable[[], Scans]) -> None:
        """`scans` returns the owner of the scans of the current query, which also counts calls of functions."""
        self._store = store
        self._database = database
        self._scans = scans
        self._engine: WasmEngine | None = None
        self._registered: dict[str, tuple[str, str]] = {}  # by name: the digest of its code, and its signature

    def register(self, called: Collection[str]) -> None:
        """Register the functions with these names, in lower case, in their current versions. Raises MissingExtra."""
        if not called:
            return
        for version in self._store.modules.list():
            named = [each for each in map(parse_signature, version.functions) if each.name.lower() in called]
            changed = [each for each in named if self._registered.get(each.name) != (version.digest, str(each))]
            if changed:
                self._add(version, changed)

    def interrupt(self) -> None:
        """Interrupt the calls under way."""
        if self._engine is not None:
            self._engine.interrupt()

    def close(self) -> None:
        """Interrupt the calls under way, and refuse others. A second call is harmless."""
        if self._engine is not None:
            self._engine.close()

    def _add(self, version: ModuleVersion, signatures: list[FunctionSignature]) -> None:
        from anabranch.wasm.engine import WasmEngine
        from anabranch.wasm.function import WasmFunction

        if self._engine is None:
            self._engine = WasmEngine(self._store.runtime.tasks)
        module = self._engine.compile(self._store.modules.code(version.module, version.number))
        for signature in signatures:
            function = WasmFunction(self._engine, module, signature)
            self._create(signature, function)
            self._registered[signature.name] = version.digest, str(signature)

    def _create(self, signature: FunctionSignature, function: Callable[[tuple[Any, ...]], pa.ChunkedArray]) -> None:
        database, inner = self._database, f"{SCHEMA}.{signature.name}"
        if signature.name in self._registered:
            database.remove_function(inner)
        names = [f"a{number}" for number in range(len(signature.arguments))]

        def call(*columns: pa.ChunkedArray) -> pa.ChunkedArray:
            return self._scans().pull(lambda: function(columns))

        # DuckDB compares the number of parameters with the signature's.
        call.__signature__ = inspect.Signature([Parameter(each, Parameter.POSITIONAL_ONLY) for each in names])  # type: ignore[attr-defined]
        types = [pa.list_(kind) if signature.aggregate else kind for _, kind in signature.arguments]
        create_function(database, inner, call, types, signature.result)
        macros = [f'{SCHEMA}."{signature.name}"']
        if not database.execute(
            "SELECT 1 FROM duckdb_functions() WHERE lower(function_name) = ? AND schema_name <> ?",
            [signature.name.lower(), SCHEMA],
        ).fetchone():
            macros.append(f'main."{signature.name}"')
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        # An aggregate gets its groups as lists.
        passed = [f"list({name})" for name in names] if signature.aggregate else names
        for macro in macros:
            create_macro(database, macro, names, inner, passed)
