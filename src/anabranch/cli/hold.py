"""`anabranch stream hold` and `keep`: streams that live as long as they have a holder."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import typer

from anabranch.cli.declare import argument, option
from anabranch.cli.interrupts import deferred
from anabranch.cli.options import (
    JSON_OPTION,
    KEY_OPTION,
    SCHEMA_OPTION,
    STREAM_ARGUMENT,
    TAG_OPTION,
    TIME_OPTION,
    invocation,
    open_catalog,
    store_path,
)
from anabranch.cli.output import print_note, print_result
from anabranch.cli.verbs import BLOBS_VARIABLE, HISTORY_VARIABLE, KEYS_VARIABLE, STORE_VARIABLE, TIME_ZONE_VARIABLE
from anabranch.core.pairs import parse_pairs
from anabranch.errors import StreamNotFound, StreamRenamed
from anabranch.runtime.folders import expand_home

if TYPE_CHECKING:
    from anabranch.runtime.ports import Runtime
    from anabranch.streams.ephemeral.api import Ephemeral
    from anabranch.streams.ephemeral.keep_alive import Held

STREAM_VARIABLE = "ANABRANCH_STREAM"


def hold(
    stream: str = STREAM_ARGUMENT,
    command: list[str] | None = argument(
        "-- COMMAND…", "The command to run; without one, hold until Ctrl-C.", default=None
    ),
    schema: str | None = SCHEMA_OPTION,
    key: str | None = KEY_OPTION,
    time: str | None = TIME_OPTION,
    segments: int = option("--segments", "N", "Segments of equal key range.", default=1),
    tag: list[str] | None = TAG_OPTION,
) -> None:
    """Hold an ephemeral stream while a command runs: an existing one, or a new one with these columns.

    The stream and its events are deleted when it has no holder left. A holder that was killed expires after two minutes
    at most.

    The command finds the store in ANABRANCH_STORE, the stream's name in ANABRANCH_STREAM. The exit code is the
    command's.

    Examples:

      anabranch stream hold iot/tmp -- ./job.sh
      anabranch stream hold iot/joined --schema "device:string, at:timestamp" --key device --time at -- python job.py
      anabranch stream hold iot/tmp
    """
    columns: Any = None
    if schema is not None:
        from anabranch.core.schema_text import parse_schema

        columns = parse_schema(schema)
    with open_catalog() as names:
        try:
            with deferred():  # else a signal that comes with the answer would leave a holder behind
                held = _create_or_hold(
                    names.ephemeral,
                    stream,
                    schema=columns,
                    key=key,
                    time=time,
                    scaling=segments,
                    tags=parse_pairs(tag, "a tag"),
                )
            with held:
                code = _run(command, stream) if command else _wait(names.runtime, stream)
        finally:
            names.ephemeral.close()
    if code:
        raise typer.Exit(code)


def keep(stream: str = STREAM_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Make an ephemeral stream permanent, whether it has holders or not.

    Example:

      anabranch stream keep iot/tmp
    """
    with open_catalog() as names:
        info = names.ephemeral.keep(stream)
    print_result(as_json, {"name": str(info.name), "ephemeral": False}, f"stream '{stream}' lasts")


def _create_or_hold(ephemeral: Ephemeral, stream: str, **creation: Any) -> Held:
    try:
        return ephemeral.hold(stream)
    except StreamRenamed:
        raise  # it exists under another name
    except StreamNotFound:
        return ephemeral.create(stream, **creation)


def _run(command: list[str], stream: str) -> int:
    """Run the command to its end and return its exit code as a shell reports it. The command does not outlive this
    process."""
    with subprocess.Popen(command, env=_environment(stream)) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the terminal sends it to the command too
            process.wait()
            raise
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return code if code >= 0 else 128 - code


def _environment(stream: str) -> dict[str, str]:
    path = store_path()
    variables = {
        STORE_VARIABLE: path if "://" in path else str(expand_home(path).absolute()),
        BLOBS_VARIABLE: invocation.blobs,
        HISTORY_VARIABLE: invocation.history,
        KEYS_VARIABLE: invocation.keys,
        TIME_ZONE_VARIABLE: invocation.time_zone,
        STREAM_VARIABLE: stream,
    }
    return {**os.environ, **{name: value for name, value in variables.items() if value is not None}}


def _wait(runtime: Runtime, stream: str) -> int:
    print_note(f"holding '{stream}' until Ctrl-C")
    while True:
        runtime.tasks.sleep(0.2)  # short, so that Ctrl-C takes effect at once
