"""`anabranch demo`: streams and a pipeline at work, and the proof of what they counted.

`measure` writes this machine's measurements, `user_file` a file's rows; `run` aggregates them with an ordinary pipeline
and shows it as `anabranch pipeline run` does; `proof` counts the events again without Spark.
"""

from __future__ import annotations

from pathlib import Path

import typer

from anabranch.cli.declare import option, without_store
from anabranch.cli.options import invocation


@without_store
def demo(
    seconds: float | None = option("--seconds", "N", "How long; default 60, 0: until Ctrl-C.", min=0),
    file: Path | None = option("--file", "FILE", "Your own CSV, JSON lines or Parquet, not this machine's metrics."),
    time: str | None = option("--time", "COLUMN", "The column with the event time, if it is not recognized."),
    key: str | None = option("--key", "COLUMN", "The column with the routing key, if it is not recognized."),
    store: str | None = option("--store", "PATH", "The store's folder; default: ./anabranch-demo."),
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
