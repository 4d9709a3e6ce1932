"""What keeps a store small and sure of itself: compact, collect, check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from anabranch.cli.options import JsonOption, StoreOption, new_app, open_store
from anabranch.cli.output import counted, print_json, say, size_text
from anabranch.cli.progress import Meter
from anabranch.errors import CorruptCatalog, InvalidArgument

if TYPE_CHECKING:
    from anabranch.log.check import Finding
    from anabranch.log.collect import CollectReport
    from anabranch.log.compact import CompactReport
    from anabranch.log.repair import Mended
    from anabranch.store import Store
    from anabranch.streams.retain import RetainReport

_Report = TypeVar("_Report")

compact_app, collect_app, retain_app, check_app = new_app(), new_app(), new_app(), new_app()

OneStreamArgument = Annotated[str | None, typer.Argument(metavar="[STREAM]", help="Only this stream.")]
EveryOption = Annotated[float | None, typer.Option("--every", metavar="SECONDS", help="Again and again, until Ctrl-C.")]


@compact_app.command()
def compact(
    stream: OneStreamArgument = None,
    force: Annotated[bool, typer.Option("--force", help="Take also what is fresh and small.")] = False,
    every: EveryOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Turn what was appended into Parquet files.

    Any engine reads them, and reading gets faster; offsets, order and times stay what they are. Without --force only what is worth a file is taken: 64 MiB of a segment, 1,024 commits, or what is over 15 minutes
    old. Safe while others write and read.

    Examples:

      anabranch compact
      anabranch compact iot/sensors --force
      anabranch compact --every 60
    """

    def once(opened: Store, meter: Meter) -> CompactReport:
        return opened.compact(stream, force=force, progress=meter.show)

    def tell(report: CompactReport) -> None:
        _told(as_json, asdict(report), _compacted(report))
        for reason in report.skipped:
            say(f"skipped: {reason}")

    _repeat(store, every, "compact", once, tell)


@collect_app.command()
def collect(
    grace: Annotated[
        float | None,
        typer.Option("--grace", metavar="SECONDS", help="Give up uploads older than this; default: an hour.", min=0),
    ] = None,
    every: EveryOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Remove bytes that no stream views any more, and ephemeral streams whose holders were killed.

    A file found unused is removed by a later collection, once the grace time has passed, so that nobody who still
    reads it is disturbed.

    Examples:

      anabranch collect
      anabranch collect --every 600
    """

    def once(opened: Store, meter: Meter) -> CollectReport:
        horizon_us = None if grace is None else round(grace * 1_000_000)
        return opened.collect(horizon_us=horizon_us, progress=meter.show)

    _repeat(store, every, "collect", once, lambda report: _told(as_json, asdict(report), _collected(report)))


@retain_app.command()
def retain(
    stream: OneStreamArgument = None,
    every: EveryOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Remove the events that retention policies let go, of one stream or of all that have one.

    Policies are set with anabranch stream retain. Files are freed by the next anabranch collect.

    Examples:

      anabranch retain
      anabranch retain --every 900
    """

    def once(opened: Store, meter: Meter) -> RetainReport:
        return opened.retain(stream, progress=meter.show)

    def tell(report: RetainReport) -> None:
        gone = f"{counted(report.events, 'event')} ({size_text(report.bytes)}) of {counted(report.truncated, 'stream')}"
        kept = f"{counted(report.streams, 'stream')} with a policy"
        _told(as_json, asdict(report), f"{gone} removed, in {report.seconds:.1f} s; {kept}")

    _repeat(store, every, "retain", once, tell)


@check_app.command()
def check(
    stream: OneStreamArgument = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="Do not read the blobs: they must be there, of their size.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Put right what can be put right safely, and say why the rest can't.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --repair: only say what would be done.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Verify the store, and say what is wrong and where.

    The key space is covered once, spans lie within logs, extents leave no gaps, and every blob's bytes are those that
    were written. Safe while others write and read.

    --repair changes only rows that follow from others (sizes, times, marks), never a blob, an extent or a span with
    events, so whatever can be read stays readable. What is left is told with what may help.

    Exit code: 0 all is well (with --repair: now), 1 something was found, 2 it could not be looked at.

    Examples:

      anabranch check
      anabranch check iot/sensors --fast
      anabranch check --repair --dry-run
      anabranch check --json | jq -r '.findings[].where'
    """
    if dry_run and not repair:
        raise InvalidArgument("--dry-run goes with --repair")
    findings: list[Finding] = []
    mended: list[Mended] = []
    explained = repair and not dry_run  # before a repair it can't be told what will be left

    def found(finding: Finding) -> None:
        findings.append(finding)
        if not as_json:
            print(finding, flush=True)
            if explained:
                print(f"  left as it is: {_advice(finding)}", flush=True)

    try:
        with open_store(store) as opened, Meter("checking", unit_bytes=False) as meter:
            for each in opened.repair(stream, dry_run=dry_run, progress=meter.show) if repair else ():
                mended.append(each)
                if not as_json:
                    with meter.paused():
                        print(f"{'would be repaired' if dry_run else 'repaired'}: {each}", flush=True)
            for finding in opened.check(stream, deep=not fast, progress=meter.show):
                with meter.paused():
                    found(finding)
    except CorruptCatalog as exc:  # damaged beyond opening: found all the same
        from anabranch.log.check import Finding

        found(Finding("catalog", str(exc)))
    if as_json:
        told: dict[str, Any] = {
            "ok": not findings,
            "findings": [
                {"where": f.where, "what": f.what, "severity": f.severity.value}
                | ({"advice": _advice(f)} if explained else {})
                for f in findings
            ],
        }
        if repair:
            told["repaired" if not dry_run else "would_be_repaired"] = [asdict(each) for each in mended]
        print_json(told)
    elif findings:
        say(counted(len(findings), "finding"))
    else:
        say("all is well")
    if findings:
        raise typer.Exit(1)


def _advice(finding: Finding) -> str:
    from anabranch.log.repair import advice

    return advice(finding)


def _repeat(
    option: str | None,
    every: float | None,
    what: str,
    once: Callable[[Store, Meter], _Report],
    tell: Callable[[_Report], None],
) -> None:
    if every is not None and every <= 0:
        raise InvalidArgument("--every takes a number of seconds above 0")
    with open_store(option) as opened:
        while True:
            with Meter(what, unit_bytes=what == "compact") as meter:
                report = once(opened, meter)
            tell(report)
            if every is None:
                return
            opened.runtime.tasks.sleep(every)


def _told(as_json: bool, report: dict[str, Any], text: str) -> None:
    if as_json:
        print_json(report)
    else:
        say(text)


def _compacted(report: CompactReport) -> str:
    if not report.files:
        return "nothing is worth compacting yet (--force takes it all the same)"
    flattened = f"; {counted(report.spans, 'short span')} of copies put together" if report.spans else ""
    return (
        f"{counted(report.events, 'event')} in {counted(report.extents, 'piece')} became "
        f"{counted(report.files, 'Parquet file')}: "
        f"{size_text(report.bytes_in)} to {size_text(report.bytes_out)}, in {report.seconds:.1f} s{flattened}"
    )


def _collected(report: CollectReport) -> str:
    waiting = (
        f"; {counted(report.blobs_waiting, 'unused blob')} left for its grace time" if report.blobs_waiting else ""
    )
    streams = f"; {counted(report.streams, 'ephemeral stream')} removed" if report.streams else ""
    return (
        f"{size_text(report.bytes_freed)} freed: {counted(report.blobs, 'blob')}, {counted(report.orphans, 'orphan')}, "
        f"{counted(report.logs, 'log')}, in {report.seconds:.1f} s{waiting}{streams}"
    )
