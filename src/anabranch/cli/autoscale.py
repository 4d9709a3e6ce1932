"""`anabranch stream autoscale`: segments that follow the load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.cli.declare import flag, option
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_store
from anabranch.cli.output import counted, print_json, print_note
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.model.policy import ByRate, Scaling


@dataclass(frozen=True)
class RateOptions:
    """The load above which segments are split."""

    events: float | None = option("--events-per-second", "N", "Split segments that get more events than this.")
    size: str | None = option("--bytes-per-second", "SIZE", "Split segments that get more bytes than this: 500KB, 2MB.")
    factor: int | None = option("--factor", "N", "Largest number of parts of one split; default: 2.", min=2)
    minimum: int | None = option("--minimum", "N", "Smallest number of segments.", min=1)

    def policy(self) -> ByRate | None:
        """Returns the policy that the options describe; None if they describe none. Raises InvalidArgument."""
        from anabranch.model.policy import ByByteRate, ByEventRate

        if self.events is None and self.size is None:
            if self.factor is not None or self.minimum is not None:
                raise InvalidArgument("--factor and --minimum require --events-per-second or --bytes-per-second")
            return None
        if self.events is not None and self.size is not None:
            raise InvalidArgument("pass --events-per-second or --bytes-per-second, not both")
        limits = (2 if self.factor is None else self.factor, 1 if self.minimum is None else self.minimum)
        if self.events is not None:
            return ByEventRate(self.events, *limits)
        assert self.size is not None
        return ByByteRate(self.size, *limits)


def autoscale(
    stream: str = STREAM_ARGUMENT,
    *,
    rate: RateOptions,
    off: bool = flag("--off", "Scale by hand from now on; the segments stay."),
    now: bool = flag("--now", "Measure the load now, and scale one step if needed."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Let the number of segments of a stream follow its load, or without options show its policy.

    A segment that receives clearly more than the target for a minute is split; neighbours that together receive less
    than half of it for ten minutes are merged. Processes with the setting scaling_s do this in the background.

    Examples:

      anabranch stream autoscale iot/sensors --events-per-second 1000 --minimum 2 --factor 4
      anabranch stream autoscale iot/sensors --bytes-per-second 2MB
      anabranch stream autoscale iot/sensors --off
    """
    new_policy = rate.policy()
    if off and new_policy is not None:
        raise InvalidArgument("pass --off or a rate, not both")
    with open_store() as opened:
        if new_policy is not None:
            opened.policies.scaling(stream, new_policy)
        elif off:
            from anabranch.model.policy import Fixed

            opened.policies.scaling(stream, Fixed())
        report = opened.rescale() if now else None
        policy = opened.policies.scaling(stream)
        segments = len(opened.streams.view(stream).current)
    if as_json:
        scaled = None if report is None else report.scaled
        print_json({"name": stream, "scaling": policy_json(policy), "segments": segments, "streams_scaled": scaled})
    else:
        print_note(f"'{stream}' has {counted(segments, 'segment')}, {scaling_text(policy)}")


def policy_json(policy: Scaling) -> dict[str, object] | None:
    """Returns the policy as JSON; None for a fixed one."""
    from anabranch.model.policy import Fixed, rate_to_json

    return None if isinstance(policy, Fixed) else rate_to_json(policy)


def scaling_text(policy: Scaling | None) -> str:
    """Returns the policy as text for people."""
    from anabranch.model.policy import Fixed

    if policy is None or isinstance(policy, Fixed):
        return "scaled by hand"
    return (
        f"scaled by load: {policy.target:,g} {policy.unit} a second for each, split into {policy.factor} at most, "
        f"{policy.minimum} at least"
    )
