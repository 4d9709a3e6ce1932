"""Where pipelines keep their checkpoints. Needs no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from anabranch.blobs.address import is_remote
from anabranch.catalog.postgres.address import PREFIXES as POSTGRES
from anabranch.errors import InvalidArgument
from anabranch.spark.cache import cache_folder
from anabranch.spark.checkpoint_place import CheckpointPlace, checkpoint_place, joined, lasting
from anabranch.spark.stores import places_of
from anabranch.store import Store

__all__ = ["LOG", "checkpoint_root", "home", "log_folder", "output_place", "output_text"]

LOG: Final = "spark.log"
_PIPELINES: Final = "pipelines"


def home(store: Store) -> str:
    """The folder or URL below which pipelines keep their checkpoints: the store's own, or with PostgreSQL the blobs'.
    Raises InvalidArgument where there is none."""
    places = places_of(store)
    where = places.blobs if places.url.startswith(POSTGRES) else places.url
    if where is None or ("://" in where and not is_remote(where)):
        raise InvalidArgument("the store has no folder of its own: say where checkpoints are kept by checkpoints=")
    return where


def checkpoint_root(store: Store, name: str, place: str | None = None) -> CheckpointPlace:
    """The folder that holds all checkpoints of a pipeline; `place`, if given, is where pipelines keep them. Raises
    InvalidArgument."""
    return checkpoint_place(joined(_all(store, place), name), store.runtime)


def _all(store: Store, place: str | None) -> str:
    return joined(home(store), _PIPELINES) if place is None else lasting(place)


def output_place(store: Store, checkpoint: str) -> CheckpointPlace:
    """Where a checkpoint lies, of which the catalog knows an absolute path, a URL, or a path below `home`."""
    known = "://" in checkpoint or Path(checkpoint).is_absolute()
    return checkpoint_place(checkpoint if known else joined(home(store), checkpoint), store.runtime)


def output_text(name: str, target: str, generation: int, place: str | None) -> str:
    """What the catalog shall know of a checkpoint: see `output_place`."""
    return joined(_PIPELINES if place is None else lasting(place), name, target, f"{generation:04}")


def log_folder(root: CheckpointPlace) -> Path:
    """Where a pipeline's `spark.log` lies: beside its checkpoints, or where these are in a bucket, in the user's cache
    folder."""
    if "://" not in root.text:
        return Path(root.text)
    return cache_folder() / _PIPELINES / root.text.partition("?")[0].rpartition("/")[2]
