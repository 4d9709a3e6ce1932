"""Where pipelines keep their checkpoints. Needs no Spark."""

from __future__ import annotations

from pathlib import Path

from anabranch.catalog.postgres.address import PREFIXES as POSTGRES
from anabranch.errors import InvalidArgument
from anabranch.spark.stores import places_of
from anabranch.store import Store

__all__ = ["checkpoint_folder", "checkpoint_root", "home"]


def home(store: Store) -> Path:
    """The folder below which pipelines keep their checkpoints: the store's own, or with PostgreSQL the blobs'. Raises
    InvalidArgument where there is none."""
    places = places_of(store)
    where = places.blobs if places.url.startswith(POSTGRES) else places.url
    if where is None or "://" in where:
        raise InvalidArgument("the store has no folder of its own: say where checkpoints are kept by checkpoints=")
    return Path(where)


def checkpoint_root(store: Store, name: str, folder: str | None = None) -> Path:
    """The folder that holds all checkpoints of a pipeline; `folder`, if given, is where pipelines keep them."""
    return (home(store) / "pipelines" if folder is None else Path(folder).absolute()) / name


def checkpoint_folder(store: Store, checkpoint: str) -> Path:
    """Where a checkpoint lies, of which the catalog knows an absolute path or one below the store's folder."""
    return Path(checkpoint) if Path(checkpoint).is_absolute() else home(store) / checkpoint
