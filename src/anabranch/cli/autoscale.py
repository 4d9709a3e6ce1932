"""`anabranch stream autoscale`: segments that follow the load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, StreamArgument, open_store
from anabranch.cli.output import counted, print_json, say
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.model.policy import ByRate, Scaling

EventsOption = Annotated[
    float | None, typer.Option("--events-per-second", metavar="N", help="Split what gets more events than that.")
]
BytesOption = Annotated[
    str | None, typer.Option("--bytes-per-second", metavar="SIZE", help="Split what gets more bytes: 500KB, 2MB.")
]
FactorOption = Annotated[
    int | None, typer.Option("--factor", metavar="N", help="Most parts of one split; default: 2.", min=2)
]
MinimumOption = Annotated[int | None, typer.Option("--minimum", metavar="N", help="Least number of segments.", min=1)]


def autoscale(
    stream: StreamArgument,
    events: EventsOption = None,
    size: BytesOption = None,
    factor: FactorOption = None,
    minimum: MinimumOption = None,
    off: Annotated[bool, typer.Option("--off", help="Scale by hand from now on; the segments stay.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Measure once at once, and scale by a step if due.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Let the segments of a stream follow its load, or without options show whether they do.

    A segment that gets clearly more than the target for a minute is split; neighbours that together get less than half of
    it for ten minutes are merged. Processes whose settings say scaling_s do it in the background.

    Examples:

      anabranch stream autoscale iot/sensors --events-per-second 1000 --minimum 2 --factor 4
      anabranch stream autoscale iot/sensors --bytes-per-second 2MB
      anabranch stream autoscale iot/sensors --off
    """
    wanted = rate_policy(events, size, factor, minimum)
    if off and wanted is not None:
        raise InvalidArgument("say --off, or a rate, not both")
    with open_store(store) as opened:
        if wanted is not None:
            opened.streams.scaling(stream, wanted)
        elif off:
            from anabranch.model.policy import Fixed

            opened.streams.scaling(stream, Fixed())
        report = opened.rescale() if now else None
        policy = opened.streams.scaling(stream)
        segments = len(opened.streams.view(stream).current)
    if as_json:
        scaled = None if report is None else report.scaled
        print_json({"name": stream, "scaling": policy_json(policy), "segments": segments, "streams_scaled": scaled})
    else:
        say(f"'{stream}' has {counted(segments, 'segment')}, {scaling_text(policy)}")


def rate_policy(events: float | None, size: str | None, factor: int | None, minimum: int | None) -> ByRate | None:
    """The policy that the options say; None where they say none. Raises InvalidArgument."""
    from anabranch.model.policy import ByByteRate, ByEventRate

    if events is None and size is None:
        if factor is not None or minimum is not None:
            raise InvalidArgument("--factor and --minimum go with --events-per-second or --bytes-per-second")
        return None
    if events is not None and size is not None:
        raise InvalidArgument("say --events-per-second or --bytes-per-second, not both")
    limits = (2 if factor is None else factor, 1 if minimum is None else minimum)
    if events is not None:
        return ByEventRate(events, *limits)
    assert size is not None
    return ByByteRate(size, *limits)


def policy_json(policy: Scaling) -> dict[str, object] | None:
    """The policy for a program; None: by hand."""
    from anabranch.model.policy import Fixed, rate_to_json

    return None if isinstance(policy, Fixed) else rate_to_json(policy)


def scaling_text(policy: Scaling | None) -> str:
    """The policy for a person."""
    from anabranch.model.policy import Fixed

    if policy is None or isinstance(policy, Fixed):
        return "scaled by hand"
    return (
        f"scaled by load: {policy.target:,g} {policy.unit} a second for each, split into {policy.factor} at most, "
        f"{policy.minimum} at least"
    )
