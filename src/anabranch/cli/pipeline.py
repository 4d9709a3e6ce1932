"""`anabranch pipeline`: SQL files that run over streams, on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import argument, flag, new_app, option
from anabranch.cli.formats import Format
from anabranch.cli.options import JSON_OPTION, open_catalog, open_store
from anabranch.cli.output import iso_time, print_columns, print_json, print_note, print_result, put_line
from anabranch.cli.ranges import time_kind
from anabranch.cli.statement_options import (
    DROP_RESULTS_OPTION,
    FILE_ARGUMENT,
    PARAM_OPTION,
    REPLACE_OPTION,
    START_BY_OPTION,
    START_FROM_OPTION,
    QueryFileOptions,
    confirm_replace,
    parse_starts,
    translated_statements,
)
from anabranch.cli.translate import DIALECT_OPTION
from anabranch.core.pairs import parse_pairs

if TYPE_CHECKING:
    from anabranch.spark.pipelines.record import PipelineRow

app = new_app()

NAME_ARGUMENT: Final = argument("NAME", "The pipeline's name.")


# The options of a run.


_STOPPING = "stopping after the micro-batch in progress; a second signal ends it at once"


@app.command()
def run(
    file: Path = FILE_ARGUMENT,
    *,
    name: str | None = option("--name", "NAME", "The pipeline's name; default: the file's name."),
    dialect: str | None = DIALECT_OPTION,
    once: bool = flag("--once", "Process the events that exist now, and end."),
    flush: bool = flag("--flush", "With --once: close all windows at the end; later events then count as late."),
    param: list[str] | None = PARAM_OPTION,
    files: QueryFileOptions,
    start: list[str] | None = START_FROM_OPTION,
    by: str = START_BY_OPTION,
    replace: bool = REPLACE_OPTION,
    seconds: float | None = option("--seconds", "N", "Stop after this many seconds.", min=0),
    events_max: int | None = option("--events-max", "N", "Maximum events of a micro-batch, for each source.", min=1),
    checkpoints: str | None = option(
        "--checkpoints",
        "FOLDER|URL",
        "Where a first run keeps its checkpoints: a folder, or s3://…; default: in the store.",
    ),
    ephemeral: bool = flag("--ephemeral", "At the end, delete the pipeline, its checkpoints and its late events."),
    also: bool = flag("--also", "Allow feeding streams that another pipeline feeds too."),
    collect: bool = flag("--collect", "At the end, print the results of the last statement in this run."),
    form: Format | None = option("--format", None, "For --collect; default: a table on a terminal, else JSON lines."),
    quiet: bool = flag("--quiet -q", "Show no progress."),
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Run a file of CREATE STREAM statements until Ctrl-C. It continues where it stopped the last time.

    With --from it starts again at that place, to correct its results: they are appended after the earlier ones, or with
    --replace instead of them. With --once --flush, windows that are still open at the end are closed and published.
    This happens without --flush when all sources are sealed.

    Ctrl-C and SIGTERM let the micro-batch in progress finish, then it exits with 0. A second signal ends it at once
    (130, or 143 for SIGTERM), and the next run repeats the batch. Progress goes to stderr, or with --json as JSON lines
    to stdout.

    Example of a statement:

      CREATE STREAM iot.means WITH (key = device, time = closed) AS
      SELECT window.end AS closed, device, avg(celsius) AS celsius
      FROM STREAM iot.sensors GROUP BY window(at, '1 minute'), device;

    Examples:

      anabranch pipeline run means.sql
      anabranch pipeline run means.sql --once --collect
      anabranch pipeline run means.sql --once --flush
      anabranch pipeline run job.sql --dialect flink
      anabranch pipeline run means.sql --from -1d --by event --replace --yes
      anabranch pipeline run means.sql --once --ephemeral
      anabranch pipeline run scores.sql --wheel scoring-1.0-py3-none-any.whl --resource model.json
    """
    times = time_kind(by)
    with open_store() as opened:
        from anabranch.cli.interrupts import interrupts
        from anabranch.cli.render.result import choose, render
        from anabranch.spark.pipelines.run import run as start_pipeline
        from anabranch.spark.pipelines.screen import watch

        kind = choose(form, as_json=as_json and collect)
        confirm_replace("pipeline", name or file.stem, start, replace=replace, yes=yes)
        pipeline = start_pipeline(
            opened,
            file if dialect is None else translated_statements(file, dialect),
            name=name or file.stem,
            once=once,
            flush=flush,
            start_from=parse_starts(opened, start),
            by=times,
            replace=replace,
            events_max=events_max,
            checkpoints=checkpoints,
            ephemeral=ephemeral,
            also=also,
            parameters=parse_pairs(param, "a parameter"),
            files=files.read(),
        )
        with interrupts(_STOPPING) as interrupted, pipeline:
            watch(pipeline, seconds=seconds, as_json=as_json and not collect, quiet=quiet, stopped=interrupted.is_set)
            if collect:
                table = pipeline.collect()
                render(table.combine_chunks().to_batches(), table.schema, kind)


@app.command("list")
def list_pipelines(as_json: bool = JSON_OPTION) -> None:
    """List the pipelines that ran in this store, with their state.

    Examples:

      anabranch pipeline list
      anabranch pipeline list --json | jq -r '.[] | select(.state == "failed") | .name'
    """
    from anabranch.spark.pipelines.record import rows

    with open_catalog() as names:
        found, now = rows(names.catalog), names.now
    if as_json:
        print_json([row.as_json(now) for row in found])
        return
    table_rows = [
        (
            row.name,
            row.state_at(now),
            iso_time(row.started_at),
            sum(each.get("read", 0) for each in row.progress),
            sum(each.get("lag", 0) for each in row.progress),
            ", ".join(output.target for output in row.outputs),
        )
        for row in found
    ]
    print_columns(("PIPELINE", "STATE", "STARTED", "READ", "LAG", "RESULTS"), table_rows)


@app.command()
def show(name: str = NAME_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show a pipeline: its statements, state, sources and results, and the progress of each.

    Example:

      anabranch pipeline show means
    """
    from anabranch.spark.pipelines.record import find

    with open_catalog() as names:
        row, now = find(names.catalog, name), names.now
    if as_json:
        print_json(row.as_json(now))
    else:
        _print(row, now)


@app.command()
def stop(
    name: str = NAME_ARGUMENT,
    seconds: float = option("--seconds", "N", "How long to wait for it.", min=0, default=60.0),
    as_json: bool = JSON_OPTION,
) -> None:
    """Stop a pipeline, in whichever process it runs. What it published stays.

    Example:

      anabranch pipeline stop means
    """
    from anabranch.spark.pipelines import admin as pipeline_admin

    with open_store() as opened:
        row = pipeline_admin.stop(opened, name, timeout_s=seconds)
        now = opened.runtime.clock.now()
    print_result(as_json, row.as_json(now), f"pipeline '{name}' is {row.state_at(now)}")


@app.command()
def reset(name: str = NAME_ARGUMENT, drop_results: bool = DROP_RESULTS_OPTION, yes: bool = YES_OPTION) -> None:
    """Forget the progress of a pipeline: its next run begins where its statements say, and appends its results again.

    With --drop-results the streams of its results and of its late events are deleted, whatever their current names. A
    stream that it did not create stays.

    Example:

      anabranch pipeline reset means --drop-results
    """
    from anabranch.spark.pipelines import admin as pipeline_admin

    with open_store() as opened:
        row = pipeline_admin.find(opened, name)
        streams = pipeline_admin.plan_removal(opened, row, results=drop_results, late=drop_results)
        results = f" and delete {', '.join(streams.deleted)}" if streams.deleted else ""
        confirm(f"Forget the checkpoints of pipeline '{name}'{results}?", yes=yes)
        dropped = pipeline_admin.reset(opened, name, drop_results=drop_results)
    print_note(f"pipeline '{name}' starts over at its next run{_results_note(dropped, streams.kept)}")


@app.command()
def delete(name: str = NAME_ARGUMENT, drop_results: bool = DROP_RESULTS_OPTION, yes: bool = YES_OPTION) -> None:
    """Delete a pipeline with its internal data: its checkpoints and the streams of its late events. Its results stay,
    unless --drop-results is given: then those of earlier statements go too. A stream that it did not create always stays.

    Example:

      anabranch pipeline delete means
    """
    from anabranch.spark.pipelines import admin as pipeline_admin

    with open_store() as opened:
        row = pipeline_admin.find(opened, name)
        streams = pipeline_admin.plan_removal(opened, row, results=drop_results, late=True, earlier=drop_results)
        confirm(f"Delete pipeline '{name}'{' with ' * bool(streams.deleted)}{', '.join(streams.deleted)}?", yes=yes)
        dropped = pipeline_admin.delete(opened, name, drop_results=drop_results)
    print_note(f"pipeline '{name}' is deleted{_results_note(dropped, streams.kept)}")


def _results_note(deleted: Sequence[str], kept: Mapping[str, str]) -> str:
    """Returns text on which of a pipeline's streams were deleted and kept."""
    return "".join(f"; {name} is deleted" for name in deleted) + "".join(
        f"; {name} is kept: {why}" for name, why in kept.items()
    )


def _print(row: PipelineRow, now: int) -> None:
    from anabranch.spark.pipelines.lateness import late_warning

    put_line(row.name, bold=True)
    shown_fields: Mapping[str, Any] = {
        "state": row.state_at(now),
        "created": iso_time(row.created_at),
        "started": iso_time(row.started_at),
        "ended": iso_time(row.ended_at) or "-",
        "process": f"{row.holder.pid} on {row.holder.host}" if row.holder is not None else "-",
        "restarts": row.generation - 1,
    }
    for label, value in shown_fields.items():
        put_line(f"  {label:<8} {value}")
    if row.error is not None:
        put_line(f"  {'error':<8} {' '.join(row.error.split())}")
    put_line()
    progress = {str(each.get("target")): each for each in row.progress}
    print_columns(
        ("RESULT", "FROM", "READ", "LAG", "WRITTEN", "LATE", "WATERMARK"),
        [(out.target, ", ".join(out.sources), *_numbers(progress.get(out.target, {}))) for out in row.outputs],
        indent="  ",
    )
    for warning in filter(None, map(late_warning, row.progress)):
        put_line(f"  warning: {warning}")
    put_line()
    for line in row.text.strip().splitlines():
        put_line(f"  {line.expandtabs()}".rstrip())


def _numbers(table_rows: Mapping[str, Any]) -> Sequence[Any]:
    return (
        *(table_rows.get(name, 0) for name in ("read", "lag", "written", "late")),
        iso_time(table_rows.get("watermark_us")),
    )
