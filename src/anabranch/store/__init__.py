"""The embedded store: its addresses (`StoreAddresses`), opening and recovery, and the `Store` facade.

Names are loaded on first use: the command line opens a catalog alone (`anabranch.store.catalog_store`) without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.store.addresses import StoreAddresses
    from anabranch.store.facade import Store
    from anabranch.store.open import connect
    from anabranch.store.recovery import rebuild, restore
    from anabranch.store.subscribers import Subscriber

_MODULES = {
    "Store": "facade",
    "StoreAddresses": "addresses",
    "Subscriber": "subscribers",
    "connect": "open",
    "rebuild": "recovery",
    "restore": "recovery",
}

__all__ = ["Store", "StoreAddresses", "Subscriber", "connect", "rebuild", "restore"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"anabranch.store.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'anabranch.store' has no attribute '{name}'")
