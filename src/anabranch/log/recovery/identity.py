"""Which store a backup, a manifest or an archive is of: each says the id of the store that wrote it."""

from __future__ import annotations

from typing import Final

from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.store import ONLY, STORE_ID, StoreId
from anabranch.runtime.ports import Runtime

_ID_BITS: Final = 128


def known_store_id(snapshot: Reading) -> str | None:
    """The store's id, or None if it has none yet."""
    found = snapshot.state(STORE_ID, ONLY)
    return None if found is None else found.id


def store_id(catalog: Catalog, runtime: Runtime) -> str:
    """The store's id, which is chosen when it is first asked for. Raises ReadOnlyStore if it would have to be chosen."""
    with catalog.reading() as snapshot:
        found = known_store_id(snapshot)
    if found is not None:
        return found
    with catalog.writing(STORE_ID.name) as txn:
        found = known_store_id(txn)
        if found is None:  # not chosen by another process meanwhile
            found = f"{runtime.ids.bits(_ID_BITS):032x}"
            txn.put_state(STORE_ID, ONLY, StoreId(found))
    return found
