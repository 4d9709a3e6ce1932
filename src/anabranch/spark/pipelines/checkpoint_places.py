"""Where pipelines keep their checkpoints, and those from which no run continues: of hot standbys that were killed, and of
leaders that were killed before their standby could remove theirs. Needs no Spark.

The checkpoint of a standby lies beside its leader's, in a folder whose name is a number that rises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from anabranch.blobs.address import is_remote
from anabranch.catalog.state.pipeline import StoredPipeline
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.spark.checkpoint_folder import CheckpointFolder, absolute_place, checkpoint_folder, joined
from anabranch.spark.session.cache import cache_folder
from anabranch.spark.stores import addresses_of
from anabranch.store import Store
from anabranch.store.addresses import POSTGRES

__all__ = [
    "LOG",
    "checkpoint_base",
    "checkpoint_root",
    "drop_abandoned",
    "log_folder",
    "output_checkpoint",
    "output_checkpoint_text",
    "standby_number",
]


LOG: Final = "spark.log"
_PIPELINES: Final = "pipelines"

_NUMBER: Final = re.compile(r"\d{4,}")


def checkpoint_base(store: Store) -> str:
    """The folder or URL below which pipelines keep their checkpoints: the store's folder, or with PostgreSQL the place
    of its blobs. Raises InvalidArgument if the store has neither."""
    places = addresses_of(store)
    where = places.blobs if places.url.startswith(POSTGRES) else places.url
    if where is None or ("://" in where and not is_remote(where)):
        raise InvalidArgument("the store is not in a folder: pass the location of the checkpoints as checkpoints=")
    return where


def checkpoint_root(store: Store, name: str, place: str | None = None) -> CheckpointFolder:
    """The folder of all checkpoints of a pipeline. `place`: the folder or URL for all pipelines, if not the default.
    Raises InvalidArgument."""
    all_pipelines = joined(checkpoint_base(store), _PIPELINES) if place is None else absolute_place(place)
    return checkpoint_folder(joined(all_pipelines, name), store.runtime)


def output_checkpoint(store: Store, checkpoint: str) -> CheckpointFolder:
    """The folder of a checkpoint that the catalog stores as an absolute path, a URL, or a path below `checkpoint_base`."""
    known = "://" in checkpoint or Path(checkpoint).is_absolute()
    return checkpoint_folder(checkpoint if known else joined(checkpoint_base(store), checkpoint), store.runtime)


def output_checkpoint_text(name: str, target: str, generation: int, place: str | None) -> str:
    """A checkpoint's location as stored in the catalog: see `output_checkpoint`."""
    return joined(_PIPELINES if place is None else absolute_place(place), name, target, f"{generation:04}")


def log_folder(root: CheckpointFolder) -> Path:
    """The folder of a pipeline's `spark.log`: that of its checkpoints, or if these are in a bucket, one in the user's
    cache folder."""
    if "://" not in root.text:
        return Path(root.text)
    return cache_folder() / _PIPELINES / root.text.partition("?")[0].rpartition("/")[2]


def standby_number(generation: int, now: Micros) -> str:
    """The name of the checkpoint folders of a standby that begins now. As a number it is higher than those before."""
    return f"{generation:04}{now}"


def drop_abandoned(store: Store, row: StoredPipeline, *, before: str) -> None:
    """Remove the checkpoints with lower numbers than `before` that the row does not name. To be called only if no standby
    that began before then can take over any more. Raises AnabranchError if they can't be listed."""
    folders = [output_checkpoint(store, each.checkpoint) for each in row.outputs if each.checkpoint]
    named = {each.text for each in folders}
    for folder in folders:
        for name in folder.siblings():
            found = folder.beside(name)
            if _NUMBER.fullmatch(name) and int(name) < int(before) and found.text not in named:
                found.drop()
