"""`anabranch archive`: streams as Parquet files in a folder or bucket, readable without a store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

from anabranch.cli.declare import argument, flag, new_app, option, without_store
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import counted, iso_time, print_columns, print_json, print_note, print_result, put_line
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.ranges import BY_OPTION, FROM_OPTION, TO_OPTION, RangeOptions
from anabranch.cli.target_store import WINDOW_OPTION, finish
from anabranch.errors import CorruptArchive, InvalidArgument
from anabranch.model.amounts import size_text

if TYPE_CHECKING:
    from anabranch.transfer.archives.export import ArchiveReport
    from anabranch.transfer.archives.format import Archive, ArchivedStream

app = new_app()

URL_ARGUMENT: Final = argument("URL", "The location of the archive: a folder, or s3://bucket/prefix.")
TRUSTED_OPTION: Final = option("--trusted", "FILE", "Require a signature that this public key (PEM, Ed25519) verifies.")


@app.command()
def create(
    source: str = argument("STREAM|SCOPE", "scope/name, a range scope/name\\[start,end], or a whole scope."),
    url: str = argument("URL", "An empty folder or prefix, for this archive only."),
    start: str | None = FROM_OPTION,
    end: str | None = TO_OPTION,
    by: str = BY_OPTION,
    sign: str | None = option("--sign", "FILE", "Sign with this private key (PEM, Ed25519)."),
    in_the_clear: bool = flag("--in-the-clear", "Permit an unencrypted archive of an encrypted store."),
    internal: bool = flag("--internal", "With a scope: also the store's own streams."),
    ephemeral: bool = flag("--ephemeral", "With a scope: also ephemeral streams."),
    window: int = WINDOW_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Archive a stream, a range of it, or all streams of a scope, as of now.

    A job of this store writes the files in parallel. An interrupted archive is not valid; to continue it, run the same
    command again, or `anabranch job resume`. Safe while others write and read.

    Examples:

      anabranch archive create iot/sensors /mnt/archive/sensors
      anabranch archive create iot/sensors s3://bucket/2025 --to 2026-01-01
      anabranch archive create iot /mnt/archive/iot --sign archive-key.pem
    """
    with ProgressMeter("archiving", unit_bytes=False) as meter:
        if "/" in source:
            with RangeOptions(source, start, end, by).open() as (opened, part):
                job = opened.jobs.archive(
                    part, url, sign=sign, in_the_clear=in_the_clear, window=window, progress=meter.show
                )
                report: ArchiveReport = finish(job, meter)
        elif start is not None or end is not None:
            raise InvalidArgument(
                "--from and --to select a part of one stream, scope/name; a scope is always archived as a whole"
            )
        else:
            with open_store() as opened:
                job = opened.jobs.archive_scope(
                    source,
                    url,
                    internal=internal,
                    ephemeral=ephemeral,
                    sign=sign,
                    in_the_clear=in_the_clear,
                    window=window,
                    progress=meter.show,
                )
                report = finish(job, meter)
    print_result(as_json, {**asdict(report), "job": job.id}, _report_text(report))


def _report_text(report: ArchiveReport) -> str:
    there = f", {report.files_there:,} of them already there" if report.files_there else ""
    signed = ", signed" if report.signed_by else ""
    return (
        f"{counted(report.streams, 'stream')} with {counted(report.events, 'event')} archived to {report.place}: "
        f"{counted(report.files, 'file')}, {size_text(report.bytes)}{there}{signed}"
    )


@app.command()
@without_store
def verify(
    url: str = URL_ARGUMENT,
    trusted: str | None = TRUSTED_OPTION,
    bytes_only: bool = flag("--bytes-only", "Compare only the files' checksums; do not read their events."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Verify an archive: every file is present and unchanged, and there are no other files.

    Needs no store. Prints one line per file with a problem; exit code 1 if there is any.

    Examples:

      anabranch archive verify /mnt/archive/sensors
      anabranch archive verify s3://bucket/2025 --trusted archive-key.pub.pem
    """
    from anabranch.store.archives import read_archive, verify_archive

    try:
        found = read_archive(url, trusted=trusted)
    except CorruptArchive:
        found = None  # verification reports why
    with ProgressMeter("verifying") as meter:
        flaws = list(verify_archive(url, trusted=trusted, content=not bytes_only, progress=meter.show))
    if as_json:
        result = {"digest": found and found.digest, "signed_by": found and found.signed_by}
        print_json({**result, "flaws": [flaw._asdict() for flaw in flaws]})
    else:
        for flaw in flaws:
            put_line(f"{flaw.file} {flaw.what}")
        print_note(f"{counted(len(flaws), 'thing')} wrong" if flaws or found is None else _whole(found.archive))
    if flaws:
        raise typer.Exit(1)


def _whole(archive: Archive) -> str:
    return f"whole: {counted(sum(1 for _ in archive.files), 'file')}, {size_text(archive.size)}"


@app.command()
@without_store
def show(url: str = URL_ARGUMENT, trusted: str | None = TRUSTED_OPTION, as_json: bool = JSON_OPTION) -> None:
    """Show what an archive contains. Needs no store, and reads only its metadata.

    Examples:

      anabranch archive show /mnt/archive/sensors
      anabranch archive show s3://bucket/2025 --json
    """
    from anabranch.store.archives import read_archive

    found = read_archive(url, trusted=trusted)
    archive = found.archive
    if as_json:
        streams = [{**stream.to_json(), "segments": len(stream.segments)} for stream in archive.streams]
        signed = {"digest": found.digest, "signed_by": found.signed_by}
        print_json({**signed, **archive.to_json(), "bytes": archive.size, "streams": streams})
        return
    store = "" if archive.store is None else f" in the store {archive.store}"
    facts = (
        ("archive", found.place),
        ("scope", archive.scope),
        ("made", f"{iso_time(archive.made_at)} by {archive.made_by}{store}"),
        ("digest", found.digest),
        ("signed", None if found.signed_by is None else f"by {found.signed_by}"),
    )
    for name, fact in facts:
        if fact is not None:
            put_line(f"{name:<9}{fact}")
    put_line()
    header = ("stream", "events", "segments", "files", "bytes", "columns", "digest of events")
    print_columns(header, [_row(stream) for stream in archive.streams])


def _row(stream: ArchivedStream) -> tuple[object, ...]:
    files = list(stream.files)
    columns = "raw" if stream.schemas[-1].raw else ", ".join(stream.schemas[-1].columns.names)
    size = sum(file.size for file in files)
    return str(stream.name), stream.events, len(stream.segments), len(files), size, columns, stream.digest.value
