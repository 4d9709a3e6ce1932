"""Planted faults of the adapter for object stores; see `planted_faults.core`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from anabranch.blobs.objects import ObjectBlobs
from anabranch.errors import StoreUnavailable
from anabranch.testing.faults import Action
from tests.simulation.planted_faults.core import PlantedFault, _replaced

__all__ = ["BUCKET_FAULTS"]


def take_own_blobs_for_anothers() -> AbstractContextManager[None]:
    """A repeated PUT whose first answer was lost finds its own blob, and reports that the key is taken."""
    return _replaced(ObjectBlobs, "_is_ours", lambda self, key, size, views: False)


def believe_silence() -> AbstractContextManager[None]:
    """A PUT without an answer before the deadline counts as done."""
    put = ObjectBlobs.put

    def faulty(self: ObjectBlobs, key: str, chunks: Sequence[Any]) -> None:
        with suppress(StoreUnavailable):
            put(self, key, chunks)

    return _replaced(ObjectBlobs, "put", faulty)


BUCKET_FAULTS: Final = (
    PlantedFault(take_own_blobs_for_anothers, ("already exists",), place="s3"),
    PlantedFault(believe_silence, ("missing", "can't be read"), {"s3.put": {Action.UNCERTAIN_LOST: 0.7}}, place="s3"),
)
