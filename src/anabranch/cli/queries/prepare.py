"""`anabranch queries prepare`: this machine starts Spark faster from then on."""

from __future__ import annotations

from anabranch.cli.declare import without_store
from anabranch.cli.output import print_note
from anabranch.cli.progress import ProgressMeter


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
