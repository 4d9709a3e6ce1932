"""Whether an upgrade of a query may be done."""

from __future__ import annotations

from anabranch.catalog.state.query_question import UpgradePlan
from anabranch.errors import InvalidArgument

__all__ = ["check_upgrade"]


def check_upgrade(found: UpgradePlan, *, places: bool) -> UpgradePlan:
    """Return the plan if it may be done: nothing is refused, and statements that start over are given `places`. Raises
    InvalidArgument."""
    for each in found.refused:
        raise InvalidArgument(f"the statement for {each.target} (line {each.line}) can't be upgraded: {each.reason}")
    if found.restarts and not places:
        first = next(each for each in found.statements if each.verdict == "restarts")
        raise InvalidArgument(
            f"the statement for {first.target} (line {first.line}) has to start over: {first.reason}. Pass --restart-from "
            "with head, tail, a time or a cut; --plan shows all statements"
        )
    return found
