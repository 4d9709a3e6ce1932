"""Returns to an older version of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from anabranch.cli.confirm import YesOption
from anabranch.cli.declare import argument
from anabranch.cli.options import JsonOption, open_store
from anabranch.cli.queries.arguments import NameArgument, RestartFromOption
from anabranch.cli.queries.info import print_change
from anabranch.cli.queries.plan import PlanOption, print_plan, upgrade_plan
from anabranch.cli.ranges import time_kind
from anabranch.cli.statement_options import ReplaceOption, StartByOption, confirm_replace, parse_starts
from anabranch.deployments.upgrades import check_upgrade
from anabranch.errors import QueryNotFound
from anabranch.remote.address import is_broker

if TYPE_CHECKING:
    from anabranch.catalog.state.query_question import UpgradePlan
    from anabranch.store import Store


def rollback(
    name: NameArgument,
    version: Annotated[int | None, argument("[VERSION]", "Default: the one before.")] = None,
    plan_only: PlanOption = False,
    restart_from: RestartFromOption = None,
    by: StartByOption = "append",
    replace: ReplaceOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
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
            print_plan(_plan(opened, name, version), as_json)
            return
        confirm_replace("query", name, restart_from, replace=replace, yes=yes)
        if not is_broker(opened.url):  # there, a host would have to be asked
            check_upgrade(_plan(opened, name, version), places=bool(restart_from))
        info = opened.queries.rollback(
            name, version, start_from=parse_starts(opened, restart_from), by=time_kind(by), replace_results=replace
        )
    print_change(info, as_json)


def _plan(store: Store, name: str, number: int | None) -> UpgradePlan:
    """What a return to this version would do, by default to the one before. Raises QueryNotFound."""
    current = store.queries.get(name).version
    versions = store.queries.versions(name)
    older = [each for each in versions if (each.number < current if number is None else each.number == number)]
    if not older:
        raise QueryNotFound(name, current - 1 if number is None else number)
    version = older[-1]
    files = {file.name: store.queries.file(name, file.name, version.number) for file in version.files}
    return upgrade_plan(store, name, version.text, version.parameters, files)
