"""The verb by which a run asks for SQL. It is no method of a store: a broker runs it in a process of its own."""

from __future__ import annotations

from typing import Any, Final

from anabranch.store.facade import Store
from anabranch.wire.verbs.verb import StoreVerb


def query(
    store: Store, sql: str, dialect: str | None = None, parameters: list[Any] | None = None
) -> list[dict[str, Any]]:
    """The rows of a query in DuckDB's SQL, or in a `dialect`'s, over the streams that the caller may read. `parameters` are
    the values of `?` or `$1`, `$2` …: texts, numbers, true, false or null. The broker does it."""
    raise NotImplementedError


QUERY: Final = StoreVerb("query", lambda arguments: [], changes=False, run=query)
