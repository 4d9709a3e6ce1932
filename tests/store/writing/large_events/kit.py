"""Large events that are not that large, and stores for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as ab
from anabranch import limits
from anabranch.model.stream import Extent
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.keys import MasterKeys
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests import s3_server
from tests.postgres_server import drop, fresh_url

SETTINGS = Settings(event_bytes_max=64 * limits.KIB, large_event_bytes_max=limits.MIB)
LARGE = 100 * limits.KIB
KEYS = MasterKeys({"one": bytes(range(32))}, SystemIds())
PLACES = ["memory", "sqlite+folder", "postgres+folder", "sqlite+s3", "encrypted"]


def body(number: int, size: int = LARGE) -> bytes:
    """Bytes that tell themselves apart everywhere."""
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8).tobytes()


@contextmanager
def opened(place: str, folder: Path, **options: Any) -> Iterator[Store]:
    url = fresh_url() if place.startswith("postgres") else None
    options = {"settings": SETTINGS, **options}
    if place == "sqlite+s3":
        options["blobs"] = s3_server.fresh_url()
    if place == "encrypted":
        options["keys"] = KEYS
    if url:
        options["blobs"] = folder / "blobs"
    where = url or ("memory://" if place == "memory" else folder / "store")
    with ab.connect(where, **options, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw")
        yield store
    if url:
        drop(url)


def extents(store: Store, stream: str = "s/raw") -> list[Extent]:
    view = store.streams.view(stream)
    with store.catalog.reading() as reading:
        logs = [span.log for segment in view.ordered for span in view.spans[segment.id]]
        return [each for log in logs for each in reading.extents(log, 0, 1 << 60, 10_000)]
