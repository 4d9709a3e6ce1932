"""Upgrades a query to a changed file, or returns to an older version."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import print_columns, print_json
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.queries.info import NAME_ARGUMENT, print_change
from anabranch.cli.ranges import time_kind
from anabranch.cli.statement_options import (
    REPLACE_OPTION,
    SIGNATURE_OPTION,
    START_BY_OPTION,
    QueryFileOptions,
    StatementFileOptions,
    confirm_replace,
    parse_starts,
    read_signature,
)
from anabranch.deployments.versions import check_upgrade
from anabranch.errors import InvalidArgument, QueryNotFound
from anabranch.model.cut import HEAD
from anabranch.remote.address import is_broker

if TYPE_CHECKING:
    from anabranch.catalog.state.query_question import UpgradePlan
    from anabranch.deployments.info import QueryInfo
    from anabranch.store import Store

_PLAN_OPTION: Final = flag("--plan", "Show what would happen to each statement, and change nothing.")
_RESTART_FROM_OPTION: Final = option(
    "--restart-from --from",
    "PLACE",
    "Where statements that lose their state start over: head, tail, a time, -15m, or a cut (one per source).",
)
_LOOK_S: Final = 0.5


def upgrade(
    name: str = NAME_ARGUMENT,
    *,
    statements: StatementFileOptions,
    trigger: str | None = option("--trigger", "DURATION", "Time between micro-batches; default: unchanged."),
    plan_only: bool = _PLAN_OPTION,
    restart_from: list[str] | None = _RESTART_FROM_OPTION,
    by: str = option("--by", "append|event", "The kind of time of --restart-from and --replay.", default="append"),
    replace: bool = flag("--replace", "With --restart-from: drop the earlier results of those statements."),
    replay: list[str] | None = option(
        "--replay", "PLACE", "Recompute all results from here, and replace the present ones once caught up."
    ),
    keep: bool = flag("--keep/--drop", "With --replay: whether the earlier results are kept.", default=True),
    wait: bool = flag("--wait/--no-wait", "With --replay: wait until the new results have taken over.", default=True),
    files: QueryFileOptions,
    signature: Path | None = SIGNATURE_OPTION,
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Deploy a changed file as a new version, and keep the state of every statement whose change allows it.

    --plan says for each statement whether it keeps its state, restarts or is refused, and why. A restart needs
    --restart-from. Without --param the parameters stay unchanged, and without --wheel, --wasm and --resource the files.

    With --replay the query keeps running while a second one, NAME-replay-VERSION, recomputes all results from the given
    position. Once that one has caught up, both are swapped in one step: the new results take over the names, and the
    earlier ones are kept as STREAM_vVERSION. To cancel it: anabranch queries delete NAME-replay-VERSION.

    Examples:

      anabranch queries upgrade means means.sql --plan
      anabranch queries upgrade means means.sql --restart-from -1d --replace --yes
      anabranch queries upgrade means means.sql --replay -7d
    """
    if replay and (restart_from or plan_only or replace):
        raise InvalidArgument("--replay recomputes all results: omit --restart-from, --replace and --plan")
    if not replay and not (keep and wait):
        raise InvalidArgument("--drop and --no-wait require --replay")
    with open_store() as opened:
        text, parameters, contents = statements.text(opened), statements.parameters or None, files.read()
        if plan_only:
            _print_plan(_upgrade_plan(opened, name, text, parameters, contents), as_json)
            return
        if replay:
            if not is_broker(opened.url):  # there, a host would have to be asked
                _upgrade_plan(opened, name, text, parameters, contents)
            if not keep:
                confirm(f"Drop the earlier results of query '{name}' once the new ones take over?", yes=yes)
            info = opened.queries.replay(
                name,
                text,
                start_from=parse_starts(opened, replay) or HEAD,
                by=time_kind(by),
                parameters=parameters,
                trigger=trigger,
                keep_results=keep,
                files=contents,
                signature=read_signature(signature),
            )
            info = _wait_for_replay(opened, info) if wait else info
        else:
            _check(_upgrade_plan(opened, name, text, parameters, contents), restart_from, replace=replace, yes=yes)
            info = opened.queries.upgrade(
                name,
                text,
                parameters=parameters,
                trigger=trigger,
                restart_from=parse_starts(opened, restart_from),
                by=time_kind(by),
                replace_results=replace,
                files=contents,
                signature=read_signature(signature),
            )
    print_change(info, as_json)


def _check(found: UpgradePlan, restart_from: Sequence[str] | None, *, replace: bool, yes: bool) -> None:
    """Refuse what can't be upgraded, and ask before earlier results are dropped."""
    check_upgrade(found, places=bool(restart_from))
    if replace and restart_from:
        confirm(f"Drop the earlier results in {', '.join(found.restarts) or 'no stream'}?", yes=yes)


def rollback(
    name: str = NAME_ARGUMENT,
    version: int | None = argument("[VERSION]", "Default: the one before.", default=None),
    plan_only: bool = _PLAN_OPTION,
    restart_from: list[str] | None = _RESTART_FROM_OPTION,
    by: str = START_BY_OPTION,
    replace: bool = REPLACE_OPTION,
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Return to an older version of a query, and keep the state of every statement that is the same in both. The others need
    --restart-from, as for `upgrade`. --plan says which they are.

    Examples:

      anabranch queries rollback means --plan
      anabranch queries rollback means
      anabranch queries rollback means 3 --restart-from head --replace --yes
    """
    with open_store() as opened:
        if plan_only:
            _print_plan(_rollback_plan(opened, name, version), as_json)
            return
        confirm_replace("query", name, restart_from, replace=replace, yes=yes)
        if not is_broker(opened.url):  # there, a host would have to be asked
            check_upgrade(_rollback_plan(opened, name, version), places=bool(restart_from))
        info = opened.queries.rollback(
            name, version, start_from=parse_starts(opened, restart_from), by=time_kind(by), replace_results=replace
        )
    print_change(info, as_json)


def _rollback_plan(store: Store, name: str, number: int | None) -> UpgradePlan:
    """What a return to this version would do, by default to the one before. Raises QueryNotFound."""
    current = store.queries.get(name).version
    versions = store.queries.versions(name)
    older = [each for each in versions if (each.number < current if number is None else each.number == number)]
    if not older:
        raise QueryNotFound(name, current - 1 if number is None else number)
    version = older[-1]
    files = {file.name: store.queries.file(name, file.name, version.number) for file in version.files}
    return _upgrade_plan(store, name, version.text, version.parameters, files)


def _upgrade_plan(
    store: Store, name: str, text: str, parameters: Mapping[str, str] | None, files: Mapping[str, bytes] | None
) -> UpgradePlan:
    """What an upgrade would do. Through a broker, a host computes it."""
    if is_broker(store.url):
        return store.queries.plan(name, text, parameters=parameters, files=files)
    from anabranch.deployments.files import check_files
    from anabranch.spark.pipelines import record
    from anabranch.spark.pipelines.plan import plan
    from anabranch.spark.queries.upgrade import plan_upgrade

    versions = store.queries.versions(name)
    number = store.queries.get(name).version
    current = next(each for each in versions if each.number == number)
    values = current.parameters if parameters is None else parameters
    listed = current.files if files is None else check_files(files)
    return plan_upgrade(record.get(store.catalog, name), versions, plan(text, values, listed))


def _print_plan(found: UpgradePlan, as_json: bool) -> None:
    """Print what the upgrade or rollback would do with each statement."""
    if as_json:
        print_json(asdict(found))
        return
    print_columns(
        ("RESULT", "LINE", "VERDICT", "REASON"),
        [(each.target, each.line, each.verdict, each.reason) for each in found.statements],
    )


def _wait_for_replay(store: Store, replay: QueryInfo) -> QueryInfo:
    """Wait until a replay has taken the place of its query, and show how many events it has read. Returns that query.
    Raises InvalidArgument if it fails, or is stopped or deleted; it is then left as it is."""
    assert replay.replaces is not None
    with ProgressMeter("replay", unit_bytes=False) as meter:
        while True:
            query = store.queries.get(replay.replaces)
            if query.version == replay.version:
                return query
            _show_replay(store, replay, meter)
            time.sleep(_LOOK_S)


def _show_replay(store: Store, replay: QueryInfo, meter: ProgressMeter) -> None:
    name = replay.name
    try:
        info = store.queries.get(name)
    except QueryNotFound:
        if store.queries.get(str(replay.replaces)).version == replay.version:  # it has just taken over
            return
        raise
    if info.wanted == "deleted":
        return
    if info.state == "failed" or info.wanted == "stopped":
        why = f": {info.error}" if info.error else ""
        raise InvalidArgument(f"replay '{name}' is {info.state}{why}; cancel it with: anabranch queries delete {name}")
    read = sum(each.get("read", 0) for each in info.progress)
    meter.show(f"replaying '{replay.replaces}'", read, read + sum(each.get("lag", 0) for each in info.progress))
