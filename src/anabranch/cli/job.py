"""`anabranch job`: the jobs that copy streams into this store, replace events, import archives, or archive streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import typer

from anabranch import limits
from anabranch.cli.declare import argument, flag, new_app, option
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import counted, iso_time, print_columns, print_json, print_note, put_line
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.target_store import WINDOW_OPTION, JobStoreOptions, finish
from anabranch.model.amounts import size_text
from anabranch.model.seconds import check_seconds

if TYPE_CHECKING:
    from anabranch.transfer.jobs.job import Job
    from anabranch.transfer.jobs.progress import JobProgress
    from anabranch.transfer.jobs.record import JobRow

app = new_app()

_NOTICED_S: Final = limits.JOB_HEARTBEAT_TIMEOUT_US / 1_000_000 + 5  # how long to wait for a job to stop

JOB_ARGUMENT: Final = argument("JOB", "The job's id.")


@app.command("list")
def list_jobs(as_json: bool = JSON_OPTION) -> None:
    """List the jobs, the newest last. Jobs that ended are removed from the list after a week. A silent job is one whose
    process is gone, or has not reported for half a minute: resume it.

    Examples:

      anabranch job list
      anabranch job list --json | jq -r '.[] | select(.state == "paused") | .job'
    """
    with open_store() as opened:
        found = [opened.jobs.get(row.id).progress() for row in opened.jobs.list()]
    if as_json:
        print_json([_described(each) for each in found])
        return
    rows = [(p.row.id, p.row.verb, _sources(p.row), p.row.target, _state(p), _share(p), _rate(p)) for p in found]
    print_columns(("JOB", "VERB", "SOURCE", "TARGET", "STATE", "DONE", "RATE"), rows)


@app.command()
def show(
    job: str = JOB_ARGUMENT,
    ranges: bool = flag("--ranges", "Also show the progress of each range."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show the progress of a job.

    Example:

      anabranch job show 3f9a61c02b7d --ranges
    """
    with open_store() as opened:
        progress = opened.jobs.get(job).progress()
    described = _described(progress)
    if ranges:
        names = ("stream", "segment", "from", "to", "reached")
        described["ranges"] = [dict(zip(names, each, strict=True)) for each in progress.ranges]
    if as_json:
        print_json(described)
        return
    if isinstance(described["from"], list):  # numbered as job resume takes them
        described["from"] = [f"{number} {place}" for number, place in enumerate(described["from"], 1)]
    for name, value in described.items():
        if name != "ranges" and value is not None:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            put_line(f"{name.replace('_', ' '):<16}  {shown}")
    if ranges:
        print_columns(("STREAM", "SEGMENT", "FROM", "TO", "REACHED"), progress.ranges, indent="  ")


@app.command()
def pause(job: str = JOB_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Stop a job. What it has moved is kept; `job resume` continues from there.

    Example:

      anabranch job pause 3f9a61c02b7d
    """
    _stop(job, lambda found: found.pause(), as_json)


@app.command()
def cancel(job: str = JOB_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Stop a job and discard what it has moved. A target that is already in place stays.

    Example:

      anabranch job cancel 3f9a61c02b7d
    """
    _stop(job, lambda found: found.cancel(), as_json)


@app.command()
def resume(
    job: str = JOB_ARGUMENT,
    *,
    others: JobStoreOptions,
    window: int = WINDOW_OPTION,
    take_over: bool = flag("--take-over", "Resume even if another process ran the job a moment ago."),
    confirm: bool = flag("--confirm", "After a restore or rebuild: allow the job to contact the locations it names."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Continue a job that was paused, has failed, or whose process was killed. Nothing is moved twice.

    A killed process is detected after 30 seconds, or with --take-over at once. The stores that the job reads are opened
    at their recorded locations, except for those given here.

    Examples:

      anabranch job resume 3f9a61c02b7d
      anabranch job resume 3f9a61c02b7d --from-store postgresql://reader@db/river --from-blobs s3://bucket/river
      anabranch job resume 3f9a61c02b7d --from-store 2=/mnt/usb/lake --from-keys 2=file:lake.keys
    """
    with open_store() as opened:
        if confirm:
            opened.jobs.confirm(job)
        row = opened.jobs.get(job).row()
        row.refuse_unconfirmed()
        events = row.verb in ("archive", "copy where", "replace")  # other jobs report bytes
        with others.open(row.places) as sources:
            try:
                with ProgressMeter(f"job {job}", unit_bytes=not events) as meter:
                    resumed = opened.jobs.resume(
                        job, source=sources, window=window, progress=meter.show, take_over=take_over
                    )
                    finish(resumed, meter)
                progress = resumed.progress()
            finally:
                opened.jobs.close()
    _report(progress, as_json)


@app.command()
def wait(
    job: str = JOB_ARGUMENT,
    timeout: float | None = option("--timeout", "SECONDS", "Give up after this time.", min=0.0),
    as_json: bool = JSON_OPTION,
) -> None:
    """Wait until a job that another process runs is done. Exit code 2 if it was paused or cancelled, or has failed; 1
    if it still runs after the timeout.

    Example:

      anabranch job wait 3f9a61c02b7d && anabranch read backup/sensors
    """
    if timeout is not None:
        check_seconds("--timeout", timeout)
    with open_store() as opened, ProgressMeter(f"job {job}") as meter:
        found = opened.jobs.get(job)
        clock = opened.runtime.clock
        until = None if timeout is None else clock.monotonic() + timeout
        while True:
            progress = found.progress()
            meter.show(f"job {job}", progress.bytes, progress.row.bytes)
            left = None if until is None else until - clock.monotonic()
            try:
                found.wait(0.5 if left is None else max(0.0, min(left, 0.5)))
                break
            except TimeoutError:
                if left is not None and left <= 0:
                    print_note(f"job {job} is still running")
                    raise typer.Exit(1) from None
        progress = found.progress()
    _report(progress, as_json)


def _stop(job: str, action: Callable[[Job], object], as_json: bool) -> None:
    """Request the stop, and wait until the job's process has noticed, which it does before its next step, or has not
    reported for so long that it counts as gone."""
    with open_store() as opened:
        found = opened.jobs.get(job)
        action(found)
        clock = opened.runtime.clock
        until = clock.monotonic() + _NOTICED_S
        while (row := found.row()).wanted is not None and clock.monotonic() < until and not row.state.ended:
            opened.runtime.tasks.sleep(0.05)
            if row.silent(opened.runtime.clock.now()):
                action(found)
        progress = found.progress()
    _report(progress, as_json)


def _report(progress: JobProgress, as_json: bool) -> None:
    row = progress.row
    if as_json:
        print_json(_described(progress))
        return
    if row.verb == "replace":
        again = f"{counted(progress.events, 'event')} of {row.events:,} stored again"
        print_note(f"job {row.id} is {_state(progress)}: {again} to replace events of '{row.target}'")
        return
    if row.verb == "copy where":
        filtered = f"{counted(progress.events, 'event')} of {row.events:,}"
        print_note(f"job {row.id} is {_state(progress)}: {filtered} of '{_sources(row)}' filtered into '{row.target}'")
        return
    moved = f"{counted(progress.events + row.followed, 'event')} of {row.events + row.followed + row.lag:,}"
    print_note(f"job {row.id} is {_state(progress)}: {moved} of '{_sources(row)}' are in '{row.target}'")


def _described(progress: JobProgress) -> dict[str, Any]:
    row = progress.row
    return {
        "job": row.id,
        "verb": row.verb,
        "state": _state(progress),
        "sources": list(row.sources),
        "from": _from(row),
        "target": row.target,
        "created_at": iso_time(row.created_at),
        "streams": row.members or None,
        "events": progress.events,
        "events_total": row.events,
        "bytes": progress.bytes,
        "bytes_total": row.bytes,
        "bytes_per_s": None if progress.rate is None else round(progress.rate),
        "seconds_left": None if progress.seconds_left is None else round(progress.seconds_left, 1),
        "followed": row.followed if "follow" in row.options else None,
        "between": _between(row),
        "events_scanned": None if progress.scanned is None else progress.scanned[0],
        "lag_events": row.lag if "follow" in row.options else None,
        "repeats_left_out": row.repeats if row.options.get("deduplicate") else None,
        "still_to_do": "the target is in place; its sources are still to be deleted" if _to_give_up(row) else None,
        "error": row.error,
    }


def _state(progress: JobProgress) -> str:
    """Returns the state of the job; `silent` if its process has not reported for a while."""
    row = progress.row
    state = "silent" if progress.silent else row.state.value
    return state if row.wanted is None else f"{state}, to be {row.wanted.value}"


def _to_give_up(row: JobRow) -> bool:
    return row.gives_up and row.result is not None and not row.state.ended


def _sources(row: JobRow) -> str:
    return ", ".join(row.sources)


def _from(row: JobRow) -> list[str] | str | None:
    """Returns where its sources live: a list if they live in several stores."""
    return [place.get("url", "here") for place in row.places] if row.more_places else row.place.get("url")


def _between(row: JobRow) -> list[str | None] | None:
    """Returns the times between which a job replaces; in µs where no calendar has them."""
    if row.verb != "replace":
        return None
    found: list[str | None] = []
    for each in (row.options["low"], row.options["high"]):
        try:
            found.append(iso_time(each))
        except (OverflowError, ValueError, OSError):
            found.append(str(each))
    return found


def _share(progress: JobProgress) -> str:
    row = progress.row
    if row.result is not None:
        return f"{row.lag:,} behind" if row.state.value == "running" and "follow" in row.options else "100 %"
    return f"{100 * progress.events // max(row.events, 1)} %"


def _rate(progress: JobProgress) -> str | None:
    if progress.rate is None or progress.seconds_left is None:
        return None
    return f"{size_text(progress.rate)}/s, {progress.seconds_left:.0f} s left"
