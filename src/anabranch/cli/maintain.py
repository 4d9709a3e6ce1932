"""The upkeep verbs: compact, collect, retain, check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import counted, print_json, print_note, print_result, put_line
from anabranch.cli.progress import ProgressMeter
from anabranch.errors import CorruptCatalog, InvalidArgument
from anabranch.model.amounts import size_text
from anabranch.model.seconds import check_seconds

if TYPE_CHECKING:
    from anabranch.log.checking.repair import RepairAction
    from anabranch.log.upkeep.collect import CollectReport
    from anabranch.log.upkeep.compact import CompactReport
    from anabranch.store import Store

_Report = TypeVar("_Report")


ONE_STREAM_ARGUMENT: Final = argument("[STREAM]", "Only this stream.", default=None)
EVERY_OPTION: Final = option("--every", "SECONDS", "Repeat until Ctrl-C, with this pause.")


def compact(
    stream: str | None = ONE_STREAM_ARGUMENT,
    force: bool = flag("--force", "Also compact new and small data."),
    every: float | None = EVERY_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Compact appended events into Parquet files.

    Any engine can read these, and reading gets faster; offsets, order and times do not change. Without --force only
    enough data for a file is compacted: 64 MiB of a segment, 1,024 commits, or data older than 15 minutes. Safe while
    others write and read.

    Examples:

      anabranch compact
      anabranch compact iot/sensors --force
      anabranch compact --every 60
    """
    for report in _reports(
        every, "compact", lambda opened, meter: opened.compact(stream, force=force, progress=meter.show)
    ):
        print_result(as_json, asdict(report), _compacted(report))
        _print_skipped(report.skipped)


def collect(
    grace: float | None = option(
        "--grace", "SECONDS", "Keep unused files and unfinished uploads for this time; default: an hour.", min=0
    ),
    every: float | None = EVERY_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Remove bytes that no stream refers to any more, and ephemeral streams whose holders were killed.

    A file found unused is removed by a later collection, once the grace time has passed, so that processes that still
    read it are not disturbed.

    Examples:

      anabranch collect
      anabranch collect --every 600
    """
    if grace is not None:
        check_seconds("--grace", grace)
    horizon_us = None if grace is None else round(grace * 1_000_000)
    for report in _reports(
        every, "collect", lambda opened, meter: opened.collect(horizon_us=horizon_us, progress=meter.show)
    ):
        print_result(as_json, asdict(report), _collected(report))
        _print_skipped(report.skipped)
        if not as_json and report.blobs_waiting:
            print_note("what keeps unused files, and until when: anabranch space")


def retain(
    stream: str | None = ONE_STREAM_ARGUMENT, every: float | None = EVERY_OPTION, as_json: bool = JSON_OPTION
) -> None:
    """Remove the events that retention policies release, of one stream or of all that have a policy.

    Policies are set with anabranch stream retain. Files are freed by the next anabranch collect.

    Examples:

      anabranch retain
      anabranch retain --every 900
    """
    for report in _reports(every, "retain", lambda opened, meter: opened.retain(stream, progress=meter.show)):
        gone = f"{counted(report.events, 'event')} ({size_text(report.bytes)}) of {counted(report.truncated, 'stream')}"
        kept = f"{counted(report.streams, 'stream')} with a policy"
        print_result(as_json, asdict(report), f"{gone} removed, in {report.seconds:.1f} s; {kept}")
        for each in () if as_json else report.passed:
            print_note(
                f"reader group '{each.group}' lags and was passed: {counted(each.events, 'event')} ({size_text(each.bytes)}) "
                f"of '{each.stream}' that it had not read are gone"
            )
        _print_skipped(report.skipped)


def check(
    stream: str | None = ONE_STREAM_ARGUMENT,
    fast: bool = flag("--fast", "Check only that each blob exists with the right size; do not read it."),
    repair: bool = flag("--repair", "Repair what can be repaired safely, and report why the rest can't."),
    dry_run: bool = flag("--dry-run", "With --repair: only report what would be done."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Verify the store, and report what is wrong and where.

    It checks that every row of the catalog is as it was written, the key space is covered once, spans lie within logs,
    extents leave no gaps, and every blob's bytes are as they were written. Safe while others write and read.

    --repair changes only rows that can be derived from others (sizes, times, marks), never a blob, an extent or a span
    with events, so whatever can be read stays readable. What remains is reported with advice.

    Exit code: 0 all is well (with --repair: now), 1 something was found, 2 the check could not run.

    Examples:

      anabranch check
      anabranch check iot/sensors --fast
      anabranch check --repair --dry-run
      anabranch check --json | jq -r '.findings[].where'
    """
    from anabranch.log.checking.check import Finding
    from anabranch.log.checking.repair import advice

    if dry_run and not repair:
        raise InvalidArgument("--dry-run requires --repair")
    findings: list[Finding] = []
    actions: list[RepairAction] = []
    explained = repair and not dry_run  # before a repair it is unknown what will be left

    def found(finding: Finding) -> None:
        findings.append(finding)
        if not as_json:
            put_line(finding, flush=True)
            if explained:
                put_line(f"  left as it is: {advice(finding)}", flush=True)

    try:
        with open_store() as opened, ProgressMeter("checking", unit_bytes=False) as meter:
            for each in opened.repair(stream, dry_run=dry_run, progress=meter.show) if repair else ():
                actions.append(each)
                if not as_json:
                    with meter.paused():
                        put_line(f"{'would be repaired' if dry_run else 'repaired'}: {each}", flush=True)
            for finding in opened.check(stream, deep=not fast, progress=meter.show):
                with meter.paused():
                    found(finding)
    except CorruptCatalog as exc:  # too damaged to be opened: report it as a finding
        found(Finding("catalog", str(exc)))
    if as_json:
        result: dict[str, Any] = {
            "ok": not findings,
            "findings": [
                {"where": f.where, "what": f.message, "severity": f.severity.value}
                | ({"advice": advice(f)} if explained else {})
                for f in findings
            ],
        }
        if repair:
            result["repaired" if not dry_run else "would_be_repaired"] = [asdict(each) for each in actions]
        print_json(result)
    elif findings:
        print_note(counted(len(findings), "finding"))
    else:
        print_note("all is well")
    if findings:
        raise typer.Exit(1)


def _reports(every: float | None, what: str, once: Callable[[Store, ProgressMeter], _Report]) -> Iterator[_Report]:
    """Does it once, or with --every until Ctrl-C, and yields each report."""
    if every is not None:
        check_seconds("--every", every)
        if every <= 0:
            raise InvalidArgument("expected --every as a number of seconds above 0")
    with open_store() as opened:
        while True:
            with ProgressMeter(what, unit_bytes=what == "compact") as meter:
                report = once(opened, meter)
            yield report
            if every is None:
                return
            opened.runtime.tasks.sleep(every)


def _print_skipped(reasons: Sequence[str]) -> None:
    for reason in reasons:
        print_note(f"skipped: {reason}")


def _compacted(report: CompactReport) -> str:
    if not report.files:
        return "nothing is worth compacting yet (--force compacts it anyway)"
    flattened = f"; {counted(report.spans, 'short span')} of copies merged" if report.spans else ""
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
