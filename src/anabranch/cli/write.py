"""`anabranch write`: append events from files and pipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from anabranch.cli.input_options import InputOptions
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, invocation
from anabranch.cli.output import counted, print_json, print_note

if TYPE_CHECKING:
    from anabranch.cli.write_file import Written


_RATED_EVENTS_MIN: Final = 10_000


def write(stream: str = STREAM_ARGUMENT, *, options: InputOptions, as_json: bool = JSON_OPTION) -> None:
    """Append the events of a file or a pipe.

    The input is JSON lines, CSV with a header, Parquet, Arrow, or plain lines; a file may be compressed as .gz. A
    stream that does not exist is created with --create, with the columns found in the first 4 MiB; plain lines make a
    raw stream. Its scope and the store are created too.
    Times are ISO 8601, or numbers: integers of µs since 1970 that lie between 1980 and 2200, or of the unit that
    --time-unit says. Times without a zone are in the zone of --time-zone, else in UTC, with a note on stderr. Data from a
    pipe is durable as soon as the pipe pauses.

    A bad row ends the command with its line and the reason: all events before it are written, and nothing after it.
    With --atomic nothing is written at all. If no event is written, the stream, scope and store that --create made are
    removed again. Up to --skip-errors bad rows are skipped and counted instead. A --reject-file gets each bad row as a
    line of JSON, with line, reason and text; without --skip-errors there may be any number of them, and the exit code
    is then 1.

    Examples:

      anabranch write iot/sensors measurements.csv --create --key device --time at
      anabranch write iot/sensors more.parquet --atomic
      anabranch write iot/sensors newer.jsonl --add-columns
      anabranch write iot/sensors dirty.csv --reject-file bad.jsonl
      anabranch write iot/sensors epochs.jsonl --time at --time-unit ms
      anabranch write iot/sensors export.csv --time-format '%d.%m.%Y %H:%M'
      tail -f app.log | anabranch write logs/app - --create
    """
    from anabranch.cli.write_file import write_file

    invocation.truncate_times = options.truncate_times
    written = write_file(stream, options)
    _report(stream, written, as_json=as_json)
    if written.rejects.count and options.skip_errors is None:
        raise typer.Exit(1)


def _report(stream: str, written: Written, *, as_json: bool) -> None:
    rows, rejects, seconds, tail = written
    if as_json:
        result = {"stream": stream, "events": rows.durable, "rejected": rejects.count, "created": rows.created}
        print_json(
            {**result, "added": rows.added, "diverted": rows.diverted, "seconds": round(seconds, 3), "tail": tail}
        )
        return
    remark = ", which is new" if rows.created else f", with new columns: {', '.join(rows.added)}" if rows.added else ""
    if rows.diverted:
        remark += f", of which {rows.diverted:,} went to streams of violations"
    bad = ""
    if rejects.count:
        where = f"; see {rejects.path}" if rejects.path is not None else ""
        bad = f"; {counted(rejects.count, 'bad row')} skipped{where}"
    # For a few events the rate would mostly measure how fast the program starts.
    rate = f" ({rows.durable / seconds:,.0f}/s)" if rows.durable >= _RATED_EVENTS_MIN else ""
    print_note(f"{counted(rows.durable, 'event')} written to '{stream}'{remark}, in {seconds:.1f} s{rate}{bad}")
