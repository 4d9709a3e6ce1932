"""Another store as a target, and waiting for the job that writes to it: what `copy`, `append`, `stitch` and `job` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.output import say
from anabranch.cli.progress import Meter

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.streams.jobs.job import Job

ToStoreOption = Annotated[
    str | None,
    typer.Option(
        "--to-store", metavar="PATH", help="Into this store, another folder or URL: bytes are moved, by a job."
    ),
]
ToBlobsOption = Annotated[
    str | None, typer.Option("--to-blobs", metavar="PLACE", help="Where that store's blobs are, as --blobs.")
]
ToHistoryOption = Annotated[
    str | None, typer.Option("--to-history", metavar="PLACE", help="Where its compacted files are, as --history.")
]
ToKeysOption = Annotated[
    str | None, typer.Option("--to-keys", metavar="PLACE", help="The keys it is encrypted with, as --keys.")
]
WindowOption = Annotated[
    int, typer.Option("--window", metavar="N", min=1, help="How many pieces are moved at the same time.")
]


def open_elsewhere(url: str, blobs: str | None, history: str | None, keys: str | None) -> Store:
    """The other store, to be closed. Raises as `connect`; StoreNotFound where there is none."""
    from anabranch.store import connect

    return connect(url, blobs=blobs, history=history, keys=keys, create=False)


def finish(job: Job, meter: Meter, store: str) -> Any:
    """Wait for a job that runs here and return what it made. An interrupt pauses it and says how to go on."""
    try:
        return job.wait()
    except KeyboardInterrupt:
        with meter.paused():
            row = job.pause()
            if not row.state.ended:
                say(f"job {job.id} is paused; go on with: anabranch --store {store} job resume {job.id}")
        raise
