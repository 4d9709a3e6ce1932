"""`anabranch stream retain`: how long the events of a stream are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, StreamArgument, open_store
from anabranch.cli.output import counted, print_json, say, size_text
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.model.retention import Retention

_UNITS_US = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000))


def retain(
    stream: StreamArgument,
    age: Annotated[str | None, typer.Option("--for", metavar="AGE", help="Let go what is older: 7d, 12h, 30m.")] = None,
    size: Annotated[
        str | None,
        typer.Option("--bytes", metavar="SIZE", help="Keep so many of the newest bytes: 500MB, 10GB, 10GiB."),
    ] = None,
    age_min: Annotated[
        str | None, typer.Option("--at-least-for", metavar="AGE", help="Keep what is younger, whatever --bytes says.")
    ] = None,
    size_min: Annotated[
        str | None, typer.Option("--at-least-bytes", metavar="SIZE", help="Keep so much, whatever --for says.")
    ] = None,
    for_ever: Annotated[bool, typer.Option("--for-ever", help="Let nothing go any more.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Carry it out at once, not with the next upkeep.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Say how long the events of a stream are kept, or without options show it.

    With --for and --bytes, an event goes when either lets it go. Ages are those of append times. Upkeep in the
    background carries policies out every 15 minutes; --now does it at once. Readers that come too late are told where
    the stream begins now.

    Examples:

      anabranch stream retain iot/sensors --for 7d
      anabranch stream retain iot/sensors --for 30d --bytes 100GB --at-least-for 1d
      anabranch stream retain iot/sensors --now
      anabranch stream retain iot/sensors --for-ever
    """
    wanted = said_policy(age, size, age_min, size_min)
    if for_ever and wanted is not None:
        raise InvalidArgument("say --for-ever, or what is let go, not both")
    with open_store(store) as opened:
        if wanted is not None or for_ever:
            opened.streams.retention(stream, wanted)
        policy = opened.streams.retention(stream)
        report = opened.retain(stream) if now else None
    if as_json:
        gone = None if report is None else {"events": report.events, "bytes": report.bytes}
        print_json({"name": stream, "retention": None if policy is None else policy.to_json(), "removed": gone})
        return
    print(policy_text(policy))
    if report is not None:
        say(f"{counted(report.events, 'event')} ({size_text(report.bytes)}) removed from '{stream}'")


def said_policy(
    age: str | None, size: str | None, age_min: str | None = None, size_min: str | None = None
) -> Retention | None:
    """The policy that options say; None where they say none. Raises InvalidArgument."""
    from anabranch.model.amounts import to_duration, to_size
    from anabranch.model.retention import Retention

    if age is None and size is None:
        if age_min is not None or size_min is not None:
            raise InvalidArgument(
                "--at-least-for and --at-least-bytes limit what --for or --bytes lets go: say one of these"
            )
        return None
    return Retention(
        None if age is None else to_duration(age),
        None if size is None else to_size(size),
        0 if age_min is None else to_duration(age_min),
        0 if size_min is None else to_size(size_min),
    )


def policy_text(policy: Retention | None) -> str:
    """A policy as people say it."""
    if policy is None:
        return "kept for ever"
    said = []
    if policy.age_us is not None:
        said.append(f"for {duration_text(policy.age_us)}")
    if policy.size is not None:
        said.append(f"the newest {size_text(policy.size)}")
    least = []
    if policy.age_min_us:
        least.append(f"for {duration_text(policy.age_min_us)}")
    if policy.size_min:
        least.append(size_text(policy.size_min))
    return "kept " + " and of that ".join(said) + (f", at least {' and '.join(least)}" if least else "")


def duration_text(micros: int) -> str:
    """A length of time in the largest unit that it is a whole number of."""
    for unit, length in _UNITS_US:
        if micros and micros % length == 0:
            return f"{micros // length}{unit}"
    return f"{micros / 1_000_000:g}s"
