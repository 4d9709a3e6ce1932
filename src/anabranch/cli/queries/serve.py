"""Runs the deployed queries of a store until a signal, and prepares this machine for it."""

from __future__ import annotations

import logging
import sys

from anabranch.cli.declare import flag, option, without_store
from anabranch.cli.options import open_store, store_path
from anabranch.cli.output import print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.core.pairs import parse_pairs
from anabranch.core.redact import shown_address


def serve(
    driver_per_query: bool = flag("--driver-per-query", "A Spark session for each query, instead of one for all."),
    spares: int = option("--spares", "N", "How many drivers to start and warm up ahead of use.", min=0, default=1),
    lease: str = option(
        "--lease", "DURATION", "The time after which another host takes the queries of a dead one.", default="10s"
    ),
    group: list[str] | None = option(
        "--group", "GROUP", "Run only the queries of this group; may be given several times."
    ),
    cpus: float | None = option("--cpus", "N", "Processors for queries. Default: all of this machine.", min=0),
    memory: str | None = option(
        "--memory", "SIZE", "Memory for drivers and queries. Default: four fifths of this machine's."
    ),
    conf: list[str] | None = option("--conf", "NAME=VALUE", "A setting of Spark; may be given several times."),
) -> None:
    """Run the deployed queries of a store until Ctrl-C.

    A host takes the queries that no other host has, runs them in a driver (a process with a Spark session), and
    restarts what fails. Several hosts may serve one store: when one is killed, another takes its queries after the time
    of --lease. It takes a query only if what the query needs (`queries deploy --cpus --memory`) is free here. SIGTERM
    and Ctrl-C let the micro-batches in progress finish and give the queries back at once.

    Examples:

      anabranch queries serve
      anabranch queries serve --group billing --cpus 4 --memory 8GB
      anabranch queries serve --driver-per-query --conf spark.driver.memory=2g
    """
    from anabranch.model.amounts import to_duration, to_size

    with open_store() as opened:
        from anabranch.cli.interrupts import interrupts
        from anabranch.spark.queries.capacity import machine_capacity
        from anabranch.spark.queries.host import QueryHost
        from anabranch.spark.queries.prepare import preparing_spark

        host = QueryHost(
            opened,
            driver_per_query=driver_per_query,
            spares=spares,
            conf=parse_pairs(conf, "a setting"),
            lease_us=to_duration(lease),
            capacity=machine_capacity(cpus, None if memory is None else to_size(memory), group),
        )
        _log_to_stderr()
        print_note(f"serving the queries of {shown_address(store_path())}; Ctrl-C ends it")
        ending = interrupts("stopping after the micro-batches in progress; a second signal ends it at once")
        with preparing_spark(), ending as interrupted:
            host.run(interrupted.is_set)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("anabranch")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


@without_store
def prepare() -> None:
    """Make Spark start in half the time on this machine.

    Runs a small query once, in some 20 seconds, and keeps Java's classes as the JVM has loaded them: 175 MB in the user's
    cache folder. Each later session and driver takes them from there. Java checks that they fit, so an upgrade of Java or
    Spark only needs this verb again. `queries serve` does it by itself in the background; use this verb in the build of an
    image, or before `pipeline run`.

    Examples:

      anabranch queries prepare
    """
    with ProgressMeter("running a small query"):
        from anabranch.spark.queries.prepare import prepare_spark

        archive = prepare_spark()
    if archive is None:
        print_note("nothing to do: SPARK_HOME is not the Spark of this Python environment")
    else:
        print_note(f"Spark's classes are in {archive}")
