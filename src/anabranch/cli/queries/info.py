"""What verbs about queries share: arguments, and how a query is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.declare import argument
from anabranch.cli.output import iso_time, print_result
from anabranch.deployments.info import progress_with_times
from anabranch.model.amounts import size_text

if TYPE_CHECKING:
    from anabranch.deployments.info import QueryInfo

NAME_ARGUMENT: Final = argument("NAME", "The query's name.")
RESULT_ARGUMENT: Final = argument("[RESULT]", "With several results: the name of the stream, or 1, 2 …", default=None)


def print_change(info: QueryInfo, as_json: bool) -> None:
    print_result(as_json, info_to_json(info), f"query '{info.name}': version {info.version} is {state_text(info)}")


def state_text(info: QueryInfo) -> str:
    if info.wanted == "deleted":
        return "being deleted"
    if info.state == "waiting":
        if info.refused is not None:
            return "waiting for room"
        return "waiting for a host" if info.host is None else "waiting to be started again"
    return info.state


def standby_text(info: QueryInfo) -> str:
    """The kind of the standby, and the state of a hot one."""
    return info.standby if info.standby_state is None else f"{info.standby}, {info.standby_state}"


def needs_text(info: QueryInfo) -> str:
    """The group of a query, and what a host sets aside for it."""
    return f"group {info.group}, {info.cpus:g} processors, {size_text(info.memory)} of memory"


def info_to_json(info: QueryInfo) -> dict[str, Any]:
    times = {name: iso_time(getattr(info, name)) for name in ("created_at", "changed_at", "retry_at")}
    return asdict(info) | times


def progress_to_json(progress: Mapping[str, Any]) -> dict[str, Any]:
    return progress_with_times(progress, iso_time)
