"""Removes the checkpoints from which no run continues: of hot standbys that were killed, and of leaders that were killed
before their standby could remove theirs.

The checkpoint of a standby lies beside its leader's, in a folder whose name is a number that rises."""

from __future__ import annotations

import re
from typing import Final

from anabranch.catalog.state.pipeline import StoredPipeline
from anabranch.model.ids import Micros
from anabranch.spark.pipelines.checkpoint_places import output_checkpoint
from anabranch.store import Store

__all__ = ["drop_abandoned", "standby_number"]

_NUMBER: Final = re.compile(r"\d{4,}")


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
