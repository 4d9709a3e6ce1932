"""`anabranch attach`: read existing Parquet files as a stream, without copying them."""

from __future__ import annotations

from anabranch.cli.archive import TRUSTED_OPTION
from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import JSON_OPTION, TRUNCATE_TIMES_OPTION, invocation, open_store
from anabranch.cli.output import counted, print_json, print_note, print_result
from anabranch.cli.progress import ProgressMeter
from anabranch.errors import InvalidArgument


def attach(
    url: str = argument("URL", "An archive, a folder or bucket of Parquet files, or one such file."),
    name: str | None = argument("NAME", "The stream's name in this store; an archive brings its own.", default=None),
    key: str | None = option("--key", "COLUMN", "The column with the routing key."),
    time: str | None = option("--time", "COLUMN", "The column with the event time."),
    stream: str | None = option("--stream", "ID", "The stream to attach, if a store's files hold several."),
    checksums: bool = flag("--checksums", "Compute checksums of all bytes now, so that later changes are detected."),
    truncate_times: bool = TRUNCATE_TIMES_OPTION,
    confirm: bool = flag("--confirm", "After a restore or rebuild: allow reading what was attached from URL."),
    trusted: str | None = TRUSTED_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Make Parquet files a stream of this store without copying them: they are read where they are.

    New events are appended to this store. The files are never changed or removed. Events are ordered by file name, then
    by row; an archive keeps its segments and offsets.

    A store that was restored or rebuilt reads attached files only after --confirm with their location, which restore,
    rebuild and error messages name. Check the location first: your credentials for such locations are sent to it.

    Examples:

      anabranch attach /data/measurements iot/old --key device --time at
      anabranch attach s3://bucket/2025 iot/sensors-2025
      anabranch attach trips.parquet taxi/trips
      anabranch attach --confirm s3://bucket/2025
    """
    invocation.truncate_times = truncate_times
    if confirm:
        if any((name, key, time, stream, checksums, trusted)):
            raise InvalidArgument("--confirm takes only a location: anabranch attach --confirm URL")
        with open_store() as opened:
            count = opened.archives.confirm_attachment(url)
        print_result(
            as_json, {"confirmed": count}, f"{counted(count, 'attachment')} confirmed" if count else "confirmed already"
        )
        return
    with open_store() as opened, ProgressMeter("looking at files", unit_bytes=False) as meter:
        made = opened.archives.attach(
            url,
            name,
            key=key,
            time=time,
            stream=stream,
            checksums=checksums,
            trusted=trusted,
            progress=meter.show,
        )
    if as_json:
        print_json(made.to_json())
    else:
        names = ", ".join(f"'{each}'" for each, _ in made.streams)
        print_note(
            f"attached as {names}; the files stay where they are" if names else "nothing attached: the scope was empty"
        )
