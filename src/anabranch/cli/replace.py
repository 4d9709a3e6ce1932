"""`anabranch replace`: replace the events of a time range with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import flag, option
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_store
from anabranch.cli.output import counted, print_json, print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.ranges import resolve_range, time_kind
from anabranch.cli.target_store import WINDOW_OPTION, finish
from anabranch.errors import InvalidArgument
from anabranch.model.stream_range import StreamRange

if TYPE_CHECKING:
    from anabranch.transfer.jobs.job import Job


def replace(
    stream: str = STREAM_ARGUMENT,
    between: tuple[str, str] = option(
        "--between", "START END", "The range of times, END exclusive; -2h is two hours ago.", default=...
    ),
    with_: str | None = option("--with", "STREAM", "The replacement: a stream, or scope/name\\[start,end]."),
    nothing: bool = flag("--with-nothing", "Remove the events, and put nothing there."),
    by: str = option("--by", "event|append", "What the times mean: event times, or append times.", default="event"),
    window: int = WINDOW_OPTION,
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Replace the events of a time range, exactly those and at once, with those of another stream.

    Events that came late or early are found wherever they are stored. Remaining events keep their order; the
    replacement is put before the first event that is removed. Writers continue; open readers get an error that what
    they read was truncated.

    If many remaining events lie scattered between removed ones, a job first stores them again: see `anabranch job`. It
    takes the other stream as it is when the job begins. If it is interrupted, running the same command again continues
    it, as does `anabranch job resume`.

    Examples:

      anabranch replace iot/sensors --between 2026-01-31T12:00:00Z 2026-01-31T13:00:00Z --with iot/repaired
      anabranch replace iot/sensors --between -2h -1h --with 'iot/repaired[-2h,-1h]' --yes
      anabranch replace iot/sensors --between 2026-01-31 2026-02-01 --with-nothing --by append
    """
    from anabranch.cli.stream_places import parse_time

    if (with_ is None) != nothing:
        raise InvalidArgument("pass either --with STREAM or --with-nothing")
    kind = time_kind(by)
    with open_store() as opened:
        now = opened.runtime.clock.now()
        start, end = (parse_time(text, now=now) for text in between)
        source: StreamRange | None = None
        if with_ is not None:
            source = resolve_range(opened, StreamRange.parse(with_), kind)
        opened.streams.get(stream)  # no question for a stream that does not exist
        confirm(f"Replace the events of '{stream}' from {between[0]} to {between[1]}?", yes=yes)
        jobs: list[Job] = []
        with ProgressMeter("replacing", unit_bytes=False) as meter:

            def started(job: Job) -> None:
                jobs.append(job)
                finish(job, meter)

            done = opened.streams.replace(
                stream,
                between=(start, end),
                with_=source,
                by=by,
                window=window,
                progress=meter.show,
                started=started,
            )
    if as_json:
        print_json({"name": stream, "job": jobs[0].id if jobs else None, **done.to_json()})
        return
    rewritten_note = f"; {counted(done.rewritten, 'event')} that remain were rewritten" if done.rewritten else ""
    print_note(
        f"{counted(done.removed, 'event')} of '{stream}' removed, {counted(done.added, 'event')} added{rewritten_note}"
    )
