"""Wounds of the adapter for object stores; see `testing.wounds`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from anabranch.blobs.objects import ObjectBlobs
from anabranch.errors import StoreUnavailable
from anabranch.testing.faults import Action
from anabranch.testing.wounds import Wound, _replaced

__all__ = ["BUCKET_WOUNDS"]


def take_own_blobs_for_anothers() -> AbstractContextManager[None]:
    """A PUT whose answer was lost finds its own blob when it is repeated, and says that the key is taken."""
    return _replaced(ObjectBlobs, "_is_ours", lambda self, key, size, views: False)


def believe_silence() -> AbstractContextManager[None]:
    """A PUT that is not answered until the deadline is taken for done."""
    put = ObjectBlobs.put

    def careless(self: ObjectBlobs, key: str, chunks: Sequence[Any]) -> None:
        with suppress(StoreUnavailable):
            put(self, key, chunks)

    return _replaced(ObjectBlobs, "put", careless)


BUCKET_WOUNDS: Final = (
    Wound(take_own_blobs_for_anothers, ("exists already",), place="s3"),
    Wound(believe_silence, ("missing", "can't be read"), {"s3.put": {Action.UNCERTAIN_LOST: 0.7}}, place="s3"),
)
