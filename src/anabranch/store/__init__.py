"""The embedded store: its places, how it is opened and recovered, and its facade."""

from __future__ import annotations

from anabranch.store.facade import Store
from anabranch.store.opening import connect
from anabranch.store.places import Places
from anabranch.store.recovery import rebuild, restore

__all__ = ["Places", "Store", "connect", "rebuild", "restore"]
