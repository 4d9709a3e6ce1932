"""Upgrades a query to a changed file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from anabranch.cli.confirm import YesOption, confirm
from anabranch.cli.declare import flag, option
from anabranch.cli.options import JsonOption, open_store
from anabranch.cli.queries.arguments import NameArgument, RestartFromOption
from anabranch.cli.queries.info import print_change
from anabranch.cli.queries.plan import PlanOption, print_plan, upgrade_plan
from anabranch.cli.queries.replay import wait_for_replay
from anabranch.cli.query_files import QueryFiles, SignatureOption, read_signature
from anabranch.cli.ranges import time_kind
from anabranch.cli.statement_options import (
    Statements,
    parse_starts,
)
from anabranch.errors import InvalidArgument
from anabranch.model.cut import HEAD
from anabranch.remote.address import is_broker

if TYPE_CHECKING:
    from anabranch.catalog.state.query_question import UpgradePlan

_Trigger = Annotated[str | None, option("--trigger", "DURATION", "Time between micro-batches; default: unchanged.")]
_By = Annotated[str, option("--by", "append|event", "The kind of time of --restart-from and --replay.")]
_Replace = Annotated[bool, flag("--replace", "With --restart-from: drop the earlier results of those statements.")]
_Replay = Annotated[
    list[str] | None,
    option("--replay", "PLACE", "Recompute all results from here, and replace the present ones once caught up."),
]
_Keep = Annotated[bool, flag("--keep/--drop", "With --replay: whether the earlier results are kept.")]
_Wait = Annotated[bool, flag("--wait/--no-wait", "With --replay: wait until the new results have taken over.")]


def upgrade(
    name: NameArgument,
    statements: Statements,
    *,
    trigger: _Trigger = None,
    plan_only: PlanOption = False,
    restart_from: RestartFromOption = None,
    by: _By = "append",
    replace: _Replace = False,
    replay: _Replay = None,
    keep: _Keep = True,
    wait: _Wait = True,
    files: QueryFiles,
    signature: SignatureOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
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
            print_plan(upgrade_plan(opened, name, text, parameters, contents), as_json)
            return
        if replay:
            if not is_broker(opened.url):  # there, a host would have to be asked
                upgrade_plan(opened, name, text, parameters, contents)
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
            info = wait_for_replay(opened, info) if wait else info
        else:
            _check(upgrade_plan(opened, name, text, parameters, contents), restart_from, replace=replace, yes=yes)
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
    from anabranch.deployments.upgrades import check_upgrade

    check_upgrade(found, places=bool(restart_from))
    if replace and restart_from:
        confirm(f"Drop the earlier results in {', '.join(found.restarts) or 'no stream'}?", yes=yes)
