"""`anabranch demo`: streams and a pipeline at work, and the proof of what they counted.

`measure` writes this machine's measurements, `user_file` a file's rows; `run` aggregates them with an ordinary pipeline
and shows it as `anabranch pipeline run` does; `proof` counts the events again without Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.options import invocation, new_app

app = new_app()


@app.command()
def demo(
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", min=0, help="How long; default 60, 0: until Ctrl-C.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Your own CSV, JSON lines or Parquet, not this machine's metrics."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="COLUMN", help="The column with the event time, if it is not recognized."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="COLUMN", help="The column with the routing key, if it is not recognized."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="PATH", help="The store's folder; default: ./anabranch-demo.", show_default=False
        ),
    ] = None,
) -> None:
    """Watch streams and a pipeline at work, and see the result verified.

    Measurements of this machine (CPU, memory, disk, network, processes) are written to host/metrics; a pipeline on
    Spark aggregates them in windows. At the end every closed window is counted again without Spark, and the counts are
    compared. Ctrl-C ends it early; a second run continues where the first stopped. With --file it ends when the file is
    aggregated.

    Exit code: 0, or 1 if the counts differ.

    Examples:

      anabranch demo
      anabranch demo --seconds 20 --store ./river
      anabranch demo --file measurements.csv
    """
    from anabranch.cli.demo.run import STORE, run

    if not run(store or invocation.store or STORE, seconds=seconds, file=file, time=time, key=key):
        raise typer.Exit(1)
