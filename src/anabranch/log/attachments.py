"""Attachments of a restored or rebuilt store: their places are not contacted until a user confirms them.

Anyone who held a backup may have changed it. It says where attached files lie, and opening such a place sends the
credentials of this process to an address chosen by the backup, or reads any folder of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.store import ATTACHMENT, Attachment
from anabranch.core.redact import shown_address
from anabranch.errors import AttachmentUnconfirmed, NotFound


def attached_place(snapshot: Reading, attachment: str) -> str | None:
    """Where the files of an attachment lie, or None if unknown. Raises AttachmentUnconfirmed, CorruptCatalog."""
    found = snapshot.state(ATTACHMENT, attachment)
    if found is None:
        return None
    if found.unconfirmed:
        raise AttachmentUnconfirmed(shown_address(found.place))
    return found.place


def unconfirmed(snapshot: Reading) -> list[str]:
    """The places that are not yet confirmed, each once, sorted. Raises CorruptCatalog."""
    return sorted({each.place for _, each in snapshot.states(ATTACHMENT) if each.unconfirmed})


def confirm(catalog: Catalog, place: str) -> int:
    """Allows reading the files of a place.

    Returns how many unconfirmed attachments lie there. Raises NotFound if nothing is attached from there.
    """
    with catalog.writing() as txn:
        there = txn.states_found(ATTACHMENT, place)
        if not there:
            raise NotFound(f"nothing was attached from {shown_address(place)}{_others(unconfirmed(txn))}")
        waiting = [attachment for attachment, each in there if each.unconfirmed]
        for attachment in waiting:
            txn.put_state(ATTACHMENT, attachment, Attachment(place))
    return len(waiting)


def _others(places: Iterable[str]) -> str:
    shown = ", ".join(map(shown_address, places))
    return f"; waiting to be confirmed: {shown}" if shown else ""
