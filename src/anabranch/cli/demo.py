"""`anabranch demo`: the main job, to be watched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.options import StoreOption, invocation, new_app

app = new_app()


@app.command()
def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", metavar="N", min=0, help="How long; 0: until Ctrl-C. Default 60, a file: to its end."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help="Your own CSV, JSON lines or Parquet instead of this machine's metrics."
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="COLUMN", help="The file's event time, if it is not found by itself."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="COLUMN", help="The file's routing key; default: its first text.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Watch it work: real events flow into a stream, Spark aggregates them in windows, and the result is proved.

    Measurements of this machine (CPU, memory, disk, network, processes) go to host/metrics; a pipeline counts and
    averages them in windows. At the end every closed window is counted again without Spark, and the counts compared:
    exit code 1 if any differs. Ctrl-C ends it early; a second run goes on where the first stopped. The store is
    ./anabranch-demo unless another is said.

    Examples:

      anabranch demo
      anabranch demo --seconds 0 --store ./river
      anabranch demo --file measurements.csv --time taken_at
    """
    from anabranch.spark.demo import STORE, run

    code = run(store or invocation.store or STORE, seconds=seconds, file=file, time=time, key=key)
    raise typer.Exit(code)
