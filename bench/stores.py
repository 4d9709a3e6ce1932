"""Stores to measure on."""

from __future__ import annotations

from pathlib import Path

import anabranch as ab


def fresh(folder: Path, *, segments: int) -> ab.Store:
    """Opens a new store in `folder` with one raw stream, `bench/events`."""
    store = ab.connect(folder, create=True)
    store.scopes.create("bench")
    store.streams.create("bench/events", scaling=ab.Fixed(segments))
    return store


def blob_files(folder: Path) -> list[Path]:
    """Returns the blobs of a store, oldest first."""
    return sorted(path for path in (folder / "blobs").rglob("*") if path.is_file())
