"""The size of a store: the files that its catalog lists, by kind, and whether anything in them is still in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from anabranch import limits
from anabranch.blobs.keys import is_attached
from anabranch.catalog.port import BlobRow
from anabranch.core.compaction import ARROW
from anabranch.export.sample import MetricSample
from anabranch.model.ids import BlobId
from anabranch.store import Store

HELP: Final = {
    "anabranch_store_bytes": "Bytes of the files of the store: live ones, and unused ones, which collections will free.",
    "anabranch_store_files": "Their number.",
}
_KINDS: Final = ("fresh", "compacted", "attached")
_STATES: Final = ("live", "unused")


def size_samples(store: Store) -> Iterator[MetricSample]:
    """Two samples for each kind and state, zeros too."""
    sizes: Counter[tuple[str, str]] = Counter()
    files: Counter[tuple[str, str]] = Counter()
    for row in _rows(store):
        group = (_kind(row), "live" if row.dead_at is None else "unused")
        sizes[group] += row.size
        files[group] += 1
    for group in ((kind, state) for kind in _KINDS for state in _STATES):
        labels = (("kind", group[0]), ("state", group[1]))
        yield MetricSample("anabranch_store_bytes", labels, sizes[group])
        yield MetricSample("anabranch_store_files", labels, files[group])


def _rows(store: Store) -> Iterator[BlobRow]:
    after = BlobId(0)
    while True:
        with store.catalog.reading() as reading:
            page = reading.blobs_after(after, limits.COLLECT_PAGE_ROWS)
        if not page:
            return
        yield from page
        after = page[-1].id


def _kind(row: BlobRow) -> str:
    if is_attached(row.key):
        return "attached"
    return "fresh" if row.encoding == ARROW else "compacted"
