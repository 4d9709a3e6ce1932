"""`anabranch bytes`: streams used as files."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from anabranch.cli.declare import argument, flag, new_app, option
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_store
from anabranch.cli.output import counted, print_json, print_result, put_line
from anabranch.cli.progress import ProgressMeter

app = new_app()

_PIECE_BYTES: Final = 1 << 20
_PAUSE_S: Final = 0.05  # a pipe without data for this long counts as paused
_FLUSH_S: Final = 1.0  # data from a pipe that never pauses is made durable this often


@app.command()
def put(
    stream: str = STREAM_ARGUMENT,
    file: str = argument("[FILE]", "A file; - or nothing is stdin.", default="-"),
    new: bool = flag("--new", "Fail if the stream already exists."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Append the bytes of a file or a pipe to a byte stream, which is created if it does not exist.

    All bytes are durable when the command ends; if it is stopped, so are those it has received. Data from a pipe is
    durable as soon as the pipe pauses. A stream has one writer, the newest: an older one elsewhere is refused from then
    on.

    Examples:

      anabranch bytes put iot/firmware firmware.bin --new
      tar c photos | anabranch bytes put backup/photos
    """
    from anabranch.model.names import StreamName

    name = StreamName.parse(stream)
    path = None if file == "-" else Path(file)
    with _source(path) as source, open_store(create=True) as opened:
        if new or opened.streams.find(name) is None:
            opened.scopes.create(name.scope, exist_ok=True)
        with opened.bytes(name, "xb" if new else "ab") as target:
            begin, clock = target.tell(), opened.runtime.clock
            flushed_at = clock.monotonic()
            with ProgressMeter(f"writing {stream}", total=None if path is None else path.stat().st_size) as meter:
                while piece := source.read1(_PIECE_BYTES):  # type: ignore[attr-defined]  # files and pipes have it
                    target.write(piece)
                    meter.show(f"writing {stream}", target.tell() - begin, None)
                    if path is None and (_pauses(source) or clock.monotonic() - flushed_at > _FLUSH_S):
                        target.flush()
                        flushed_at = clock.monotonic()
                target.flush()
            end = target.tell()
    print_result(
        as_json,
        {"stream": stream, "bytes": end - begin, "start": begin, "tail": end},
        f"{counted(end - begin, 'byte')} written to '{stream}', which ends at {end:,}",
    )


@app.command()
def get(
    stream: str = STREAM_ARGUMENT,
    file: str = argument("[FILE]", "A new file; - or nothing is stdout.", default="-"),
    start: int | None = option("--from", "BYTE", "The first position; default: the head.", min=0),
    limit: int | None = option("--limit -n", "N", "At most this many bytes.", min=0),
    follow: bool = flag("--follow -f", "Keep waiting for more, until the stream is sealed or Ctrl-C."),
) -> None:
    """Write the bytes of a byte stream to a file or to stdout.

    Examples:

      anabranch bytes get iot/firmware firmware.bin
      anabranch bytes get backup/photos | tar t
      anabranch bytes get iot/firmware --from 4096 --limit 512
    """
    with open_store() as opened, opened.bytes(stream, follow=follow) as source, _target(file) as target:
        if start is not None:
            source.seek(start)
        begin, total = source.tell(), None if follow else max(0, source.tail() - source.tell())
        left = sys.maxsize if limit is None else limit
        with ProgressMeter(f"reading {stream}", total=total if limit is None else min(limit, total or limit)) as meter:
            while left and (piece := source.read1(min(left, _PIECE_BYTES))):
                target.write(piece)
                target.flush()
                left -= len(piece)
                meter.show(f"reading {stream}", source.tell() - begin, None)


@app.command()
def show(stream: str = STREAM_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show the first and the end position of a byte stream.

    Example:

      anabranch bytes show iot/firmware --json
    """
    with open_store() as opened, opened.bytes(stream) as file:
        head, tail = file.head(), file.tail()
    if as_json:
        print_json({"stream": stream, "head": head, "tail": tail, "bytes": tail - head})
    else:
        put_line(f"{stream}: {counted(tail - head, 'byte')}, from {head:,} to {tail:,}")


def _pauses(source: BinaryIO) -> bool:
    try:
        return not select.select([source.fileno()], [], [], _PAUSE_S)[0]
    except OSError:  # it is not a file of the operating system
        return False


@contextmanager
def _source(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file


@contextmanager
def _target(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdout.buffer
        return
    with Path(file).open("xb") as opened:
        yield opened
