"""`anabranch stream limit`: what brokers do with appends above a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.cli.declare import flag, option
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_store
from anabranch.cli.output import print_json, print_note
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.model.load_policy import LoadPolicy


def limit(
    stream: str = STREAM_ARGUMENT,
    events: float | None = option("--events-per-second", "N", "Accept at most this many events per second."),
    size: str | None = option("--bytes-per-second", "SIZE", "Accept at most this many bytes per second: 500KB, 2MB."),
    sample: str | None = option("--sample", "COLUMN", "Keep a sample instead, with the weights in this column."),
    off: bool = flag("--off", "Accept all appends from now on."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Set what brokers do with appends to a stream above a rate, or without options show it.

    Above the rate they are rejected, with the time after which to try again. With --sample, one of several events is kept
    instead, and a column holds the number of events that it stands for. Each process of a broker counts its own appends.

    Examples:

      anabranch stream limit iot/sensors --events-per-second 1000
      anabranch stream limit iot/sensors --bytes-per-second 2MB --sample weight
      anabranch stream limit iot/sensors --off
    """
    wanted = _policy(events, size, sample)
    if off and wanted is not None:
        raise InvalidArgument("pass --off or a rate, not both")
    with open_store() as opened:
        if off or wanted is not None:
            opened.policies.load(stream, wanted)
        policy = opened.policies.load(stream)
    if as_json:
        from anabranch.model.load_policy import load_policy_to_json

        print_json({"name": stream, "load": None if policy is None else load_policy_to_json(policy)})
    else:
        print_note(f"'{stream}': {load_text(policy)}")


def load_text(policy: LoadPolicy | None) -> str:
    """The policy as text for people."""
    from anabranch.model.amounts import size_text
    from anabranch.model.load_policy import RejectAbove

    if policy is None:
        return "all appends are accepted"
    rate, limits = policy.rate, []
    if rate.events_per_s is not None:
        limits.append(f"{rate.events_per_s:,g} events")
    if rate.bytes_per_s is not None:
        limits.append(size_text(rate.bytes_per_s))
    what = f"appends above {' or '.join(limits)} a second are"
    return f"{what} rejected" if isinstance(policy, RejectAbove) else f"{what} sampled, weights in '{policy.weight}'"


def _policy(events: float | None, size: str | None, sample: str | None) -> LoadPolicy | None:
    from anabranch.model.load_policy import RejectAbove, SampleAbove
    from anabranch.model.rate import Rate

    if events is None and size is None:
        if sample is not None:
            raise InvalidArgument("--sample requires --events-per-second or --bytes-per-second")
        return None
    rate = Rate(events, size)
    return RejectAbove(rate) if sample is None else SampleAbove(rate, sample)
