"""`anabranch stream retain`: how long the events of a stream are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import flag, option
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_store
from anabranch.cli.output import counted, iso_time, print_columns, print_json, print_note, put_line
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import duration_text, size_text

if TYPE_CHECKING:
    from anabranch.store import Subscriber
    from anabranch.streams.retention.policy import Release, Retention


def retain(
    stream: str = STREAM_ARGUMENT,
    age: str | None = option("--for", "AGE", "Remove events older than this: 7d, 12h, 30m."),
    size: str | None = option("--bytes", "SIZE", "Keep this many of the newest bytes: 500MB, 10GB, 10GiB."),
    age_min: str | None = option("--at-least-for", "AGE", "Keep events younger than this, regardless of --bytes."),
    size_min: str | None = option("--at-least-bytes", "SIZE", "Keep at least this much, regardless of --for."),
    groups: list[str] | None = option(
        "--group",
        "GROUP",
        "Remove events that this reader group has read; with several groups, those that all have read.",
    ),
    checkpointed: bool = flag(
        "--checkpointed", "With --group: remove events before its last checkpoint, not those that it has read."
    ),
    forever: bool = flag("--forever", "Keep all events from now on."),
    now: bool = flag("--now", "Carry it out at once, not with the next upkeep."),
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Set how long the events of a stream are kept, or without options show it.

    With --for and --bytes, an event is removed when either releases it. Ages are counted from the append time. Background
    upkeep applies policies every 15 minutes; --now does it at once. Readers that come too late get an error that names
    the stream's new start.

    With --group, the subscribers, an event is removed when all of them have read it. --for and --bytes are then the
    bound: a group that lags beyond it is reported and no longer waited for. Without a bound, a group that no longer
    reads keeps everything.

    Examples:

      anabranch stream retain iot/sensors --for 7d
      anabranch stream retain iot/sensors --for 30d --bytes 100GB --at-least-for 1d --yes
      anabranch stream retain iot/sensors --group iot/dash --group iot/billing --for 30d
      anabranch stream retain iot/sensors --now
      anabranch stream retain iot/sensors --forever
    """
    new_policy = policy_from_options(age, size, age_min, size_min, groups or (), checkpointed=checkpointed)
    if forever and new_policy is not None:
        raise InvalidArgument("pass --forever or a limit, not both")
    with open_store() as opened:
        if new_policy is not None and new_policy != opened.policies.retention(stream):
            confirm(
                f"From now on remove all events of '{stream}' beyond this limit: {policy_text(new_policy)}?", yes=yes
            )
        if new_policy is not None or forever:
            opened.policies.retention(stream, new_policy)
        policy = opened.policies.retention(stream)
        report = opened.retain(stream) if now else None
        subscribers = [subscriber_json(each) for each in opened.subscribers.list(stream)]
    if as_json:
        gone = None if report is None else {"events": report.events, "bytes": report.bytes}
        kept = None if policy is None else policy.to_json()
        print_json({"name": stream, "retention": kept, "removed": gone, "subscribers": subscribers})
        return
    put_line(policy_text(policy))
    if subscribers:
        put_line()
        print_subscribers(subscribers, "group")
    if report is not None:
        print_note(f"{counted(report.events, 'event')} ({size_text(report.bytes)}) removed from '{stream}'")


def policy_from_options(
    age: str | None,
    size: str | None,
    age_min: str | None = None,
    size_min: str | None = None,
    groups: Sequence[str] = (),
    *,
    checkpointed: bool = False,
) -> Retention | None:
    """Returns the policy that the options describe; None if they describe none. Raises InvalidArgument."""
    from anabranch.model.amounts import to_duration, to_size
    from anabranch.streams.retention.policy import RetainConsumed, Retention

    if checkpointed and not groups:
        raise InvalidArgument("--checkpointed needs at least one --group")
    if age is None and size is None and not groups:
        if age_min is not None or size_min is not None:
            raise InvalidArgument(
                "--at-least-for and --at-least-bytes limit --for, --bytes or --group: pass one of these too"
            )
        return None
    least = 0 if age_min is None else to_duration(age_min), 0 if size_min is None else to_size(size_min)
    bound = None
    if age is not None or size is not None:
        bound = Retention(None if age is None else to_duration(age), None if size is None else to_size(size), *least)
    if not groups:
        return bound
    release: Release = "checkpoint" if checkpointed else "position"
    return RetainConsumed(groups, at_most=bound, age_min=least[0], bytes_min=least[1], release=release)


def policy_text(policy: Retention | None) -> str:
    """Returns the policy as text for people."""
    if policy is None:
        return "kept forever"
    bounds = []
    if policy.age_us is not None:
        bounds.append(f"for {duration_text(policy.age_us)}")
    if policy.size is not None:
        bounds.append(f"the newest {size_text(policy.size)}")
    least = []
    if policy.age_min_us:
        least.append(f"for {duration_text(policy.age_min_us)}")
    if policy.size_min:
        least.append(size_text(policy.size_min))
    kept = " and of that ".join(bounds)
    if policy.groups:
        until = (
            "until " + ("checkpointed by " if policy.release == "checkpoint" else "read by ") + ", ".join(policy.groups)
        )
        kept = until + (f", at most {kept}" if bounds else "")
    return f"kept {kept}" + (f", at least {' and '.join(least)}" if least else "")


def subscriber_json(each: Subscriber) -> dict[str, Any]:
    """Returns one subscriber of a stream as JSON."""
    return {
        "stream": each.stream,
        "group": each.group,
        "state": each.state,
        "cut": None if each.cut is None else str(each.cut),
        "kept": each.events,
        "kept_bytes": each.bytes,
        "passed": each.passed_events,
        "passed_bytes": each.passed_bytes,
        "passed_at": iso_time(each.passed_at),
    }


def print_subscribers(rows: Sequence[dict[str, Any]], by: str) -> None:
    """Prints a table of subscribers, each labelled `by` its group or its stream."""
    print_columns(
        (by.upper(), "STATE", "KEPT FOR IT", "BYTES", "PASSED BY", "LAST PASSED"),
        [
            (each[by], each["state"], each["kept"], size_text(each["kept_bytes"]), each["passed"], each["passed_at"])
            for each in rows
        ],
        indent="  ",
    )
