"""All kinds of state, and the check of a row of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from anabranch.catalog.state import (
    access,
    ephemeral,
    former_names,
    job,
    job_plan,
    lineage,
    listener,
    load,
    module_version,
    pipeline,
    query,
    query_question,
    query_version,
    retention,
    store,
    streams,
    transaction,
)
from anabranch.catalog.state.kind import Entry, State, StateKind
from anabranch.errors import CorruptCatalog

_MODULES: Final = (
    *(access, ephemeral, former_names, job, job_plan, lineage, listener, load, module_version, pipeline),
    *(query, query_question, query_version, retention, store, streams, transaction),
)
KINDS: Final[Mapping[str, StateKind[Any, Any]]] = MappingProxyType(
    {each.name: each for module in _MODULES for each in vars(module).values() if isinstance(each, StateKind)}
)


def decode(entry: Entry) -> State[Any, Any]:
    """The key and the value of a row of any kind. Raises CorruptCatalog, also for an unknown kind; FormatTooNew."""
    kind = KINDS.get(entry.kind)
    if kind is None:
        shown = f"{entry.kind}, {entry.key}"[:200]
        raise CorruptCatalog(
            f"the state ({shown}) of the catalog has a kind that this release does not know", "states", shown
        )
    return kind.decode(entry)
