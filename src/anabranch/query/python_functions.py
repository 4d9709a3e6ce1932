"""Makes functions in Python over Arrow columns part of a DuckDB database, each behind a macro of its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb


def create_function(
    database: duckdb.DuckDBPyConnection,
    name: str,
    call: Callable[..., pa.ChunkedArray],
    arguments: Sequence[pa.DataType] | None,
    result: pa.DataType,
) -> None:
    """Create a function that takes and returns columns of these types. Without `arguments` it takes any."""
    kinds = [*(arguments or ()), result]
    types = database.from_arrow(pa.schema([(str(n), kind) for n, kind in enumerate(kinds)]).empty_table()).types
    takes = None if arguments is None else types[:-1]
    create: Any = database.create_function  # its type hints lack a documented argument
    create(name, call, takes, types[-1], type="arrow", null_handling="special")


def create_macro(
    database: duckdb.DuckDBPyConnection, name: str, parameters: Sequence[str], function: str, passed: Sequence[str]
) -> None:
    """Create the macro `name(parameters)` that calls a function with what is `passed`. The name is SQL already."""
    database.execute(f'CREATE OR REPLACE MACRO {name}({", ".join(parameters)}) AS "{function}"({", ".join(passed)})')
