"""Changing tokens, roles and bindings, so that brokers notice."""

from __future__ import annotations

from anabranch.catalog.port import Writing
from anabranch.catalog.state.access import ACCESS_VERSION, ONLY, AccessVersion


def note_change(txn: Writing) -> None:
    """Count a change of who may do what, in the transaction that makes it."""
    found = txn.state(ACCESS_VERSION, ONLY)
    txn.put_state(ACCESS_VERSION, ONLY, AccessVersion(1 if found is None else found.changes + 1))
