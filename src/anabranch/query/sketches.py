"""The functions of sketches in queries: those that a query names become functions of its database before it runs.

DuckDB takes no aggregates from Python. So an aggregate is a macro: DuckDB gathers a group's values in a list, and a function
makes or merges the sketch of it. That list is in memory, within the query's limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.query.python_functions import create_function, create_macro
from anabranch.query.scan import Scans
from anabranch.sketches.sql.function import SketchFunction, called_functions

if TYPE_CHECKING:
    import duckdb

__all__ = ["SketchFunctions"]

_GATHER: Final = {"all": "list({0})", "distinct": "list(DISTINCT {0})", "counts": "map_entries(histogram({0}))"}


class SketchFunctions:
    """The functions in one database."""

    def __init__(self, database: duckdb.DuckDBPyConnection, scans: Callable[[], Scans]) -> None:
        """`scans` returns the owner of the scans of the current query, which also counts calls of functions."""
        self._database = database
        self._scans = scans
        self._registered: set[str] = set()

    def register(self, called: Collection[str]) -> None:
        """Register the functions with these names, in lower case. Raises MissingExtra."""
        for function in called_functions(called):
            if function.name not in self._registered:
                self._create(function)
                self._registered.add(function.name)

    def _create(self, function: SketchFunction) -> None:
        def call(*columns: pa.ChunkedArray) -> pa.ChunkedArray:
            return pa.chunked_array([self._scans().pull(lambda: function(*columns))])

        inner, names = f"sketches.{function.name}", [f'"{name}"' for name in function.parameters]
        create_function(self._database, inner, call, None, function.result)
        required = len(names) - len(function.defaults)
        optional = zip(names[required:], function.defaults, strict=True)
        parameters = [*names[:required], *(f"{name} := {value}" for name, value in optional)]
        if function.gathers is not None:
            names[0] = _GATHER[function.gathers].format(names[0])
        create_macro(self._database, f'main."{function.name}"', parameters, inner, names)
