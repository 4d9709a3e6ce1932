"""Shows what an upgrade or rollback of a query would do with each of its statements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from anabranch.cli.declare import flag
from anabranch.cli.output import print_columns, print_json

if TYPE_CHECKING:
    from anabranch.catalog.state.query_question import UpgradePlan
    from anabranch.store import Store

PlanOption = Annotated[bool, flag("--plan", "Show what would happen to each statement, and change nothing.")]


def upgrade_plan(
    store: Store, name: str, text: str, parameters: Mapping[str, str] | None, files: Mapping[str, bytes] | None
) -> UpgradePlan:
    """What an upgrade would do. Through a broker, a host computes it."""
    from anabranch.remote.address import is_broker

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


def print_plan(found: UpgradePlan, as_json: bool) -> None:
    """Print what the upgrade or rollback would do with each statement."""
    from dataclasses import asdict

    if as_json:
        print_json(asdict(found))
        return
    print_columns(
        ("RESULT", "LINE", "VERDICT", "REASON"),
        [(each.target, each.line, each.verdict, each.reason) for each in found.statements],
    )
