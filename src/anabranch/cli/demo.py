"""`anabranch demo`: the main job, to be watched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.options import StoreOption, new_app, store_path

app = new_app()


@app.command()
def demo(
    seconds: Annotated[float, typer.Option("--seconds", metavar="N", min=1, help="How long.")] = 30.0,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help="Your own CSV, JSON lines or Parquet instead of this machine's metrics."
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Watch it work: real events flow into a stream, Spark aggregates them in windows, and the result is proved.

    Measurements of this machine (CPU, memory, disk, network, processes) go to host/metrics; a pipeline counts and
    averages them in windows. At the end every closed window is counted again without Spark, and the counts compared.
    Ctrl-C ends it early; a second run goes on where the first stopped.

    Examples:

      anabranch demo
      anabranch demo --seconds 60 --store ./river
      anabranch demo --file measurements.csv
    """
    from anabranch.spark.demo import run

    run(store_path(store), seconds=seconds, file=file)
