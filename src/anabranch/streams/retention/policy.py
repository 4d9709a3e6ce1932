"""How long the events of a stream are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import to_duration, to_size
from anabranch.model.names import StreamName

# How far a group releases a stream: up to its accepted positions, or up to its last complete checkpoint.
Release: TypeAlias = Literal["position", "checkpoint"]


@dataclass(frozen=True, slots=True)
class Retention:
    """An event may be removed when it is older than `age_us`, or when `size` logical bytes lie after it, or when all
    reader `groups` have read it; a bound that is None or empty does not apply. An event stays while it is younger
    than `age_min_us` or among the newest `size_min` bytes. Ages are by append time. Two policies are joined by `|`.

    With `groups`, the subscribers, an age or a size is the bound at which a lagging group loses events: nothing else
    removes an event that a subscriber has not read. `release` says what counts as read.
    """

    age_us: int | None = None
    size: int | None = None
    age_min_us: int = 0
    size_min: int = 0
    groups: tuple[str, ...] = ()
    release: Release = "position"

    def __post_init__(self) -> None:
        if self.age_us is None and self.size is None and not self.groups:
            raise InvalidArgument("expected a retention policy with an age, a size or reader groups, got none of them")
        if self.age_us is not None and self.age_us < self.age_min_us:
            raise InvalidArgument("expected a minimum age of at most the age of the retention policy")
        if self.size is not None and self.size < self.size_min:
            raise InvalidArgument("expected a minimum size of at most the size of the retention policy")
        if len(set(self.groups)) != len(self.groups) or len(self.groups) > limits.SUBSCRIBERS_MAX:
            raise InvalidArgument(
                f"expected each reader group once, and at most {limits.SUBSCRIBERS_MAX} groups in a retention policy"
            )
        if self.release not in get_args(Release):
            raise InvalidArgument(f"expected release 'position' or 'checkpoint', got '{self.release}'")

    def __or__(self, other: Retention) -> Retention:
        """The joint policy: what either removes is removed, except what either keeps as a minimum. Raises
        InvalidArgument where both have an age, both have a size, or both have groups."""
        if (
            (self.age_us is not None and other.age_us is not None)
            or (self.size is not None and other.size is not None)
            or (self.groups and other.groups)
        ):
            raise InvalidArgument(
                "can't join two retention policies that both have an age, both have a size, or both have groups"
            )
        return Retention(
            self.age_us if other.age_us is None else other.age_us,
            self.size if other.size is None else other.size,
            max(self.age_min_us, other.age_min_us),
            max(self.size_min, other.size_min),
            self.groups or other.groups,
            self.release if self.groups else other.release,
        )

    def without_groups(self) -> Retention | None:
        """The policy without its subscribers, which belong to one store; None if it has no other bound. It removes
        nothing that the whole policy keeps."""
        if self.age_us is None and self.size is None:
            return None
        return replace(self, groups=(), release="position")

    def to_json(self) -> dict[str, object]:
        """The form in which the catalog keeps it."""
        kept: dict[str, object] = {
            "age_us": self.age_us,
            "size": self.size,
            "age_min_us": self.age_min_us,
            "size_min": self.size_min,
        }
        return kept | ({"groups": list(self.groups), "release": self.release} if self.groups else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Retention:
        """The inverse of `to_json`."""
        return cls(
            value["age_us"],
            value["size"],
            value["age_min_us"],
            value["size_min"],
            tuple(value.get("groups", ())),
            value.get("release", "position"),
        )


def RetainFor(age: timedelta | int | str, *, bytes_min: int | str = 0) -> Retention:  # noqa: N802 - reads as a policy
    """A policy that removes events older than `age` (`7d`, a timedelta, or µs), except the newest `bytes_min` bytes."""
    return Retention(age_us=to_duration(age), size_min=to_size(bytes_min))


def RetainBytes(size: int | str, *, age_min: timedelta | int | str = 0) -> Retention:  # noqa: N802 - reads as a policy
    """A policy that keeps the newest `size` bytes (`10GB`, or an integer), and removes events before them once they are
    older than `age_min`."""
    return Retention(size=to_size(size), age_min_us=to_duration(age_min))


def RetainConsumed(  # noqa: N802 - reads as a policy
    groups: Sequence[str] | str,
    *,
    at_most: Retention | None = None,
    age_min: timedelta | int | str = 0,
    bytes_min: int | str = 0,
    release: Release = "position",
) -> Retention:
    """A policy that removes events once all reader `groups` (`scope/name`) have read them; see `Retention`. A group
    that lags beyond the bound `at_most` is reported and loses events; without a bound, a group that no longer reads
    keeps everything. Events younger than `age_min` and the newest `bytes_min` bytes stay even if they were read. With
    `release="checkpoint"` a group releases what lies before its last complete checkpoint."""
    named = [groups] if isinstance(groups, str) else groups
    if not isinstance(named, Collection) or not named:
        raise InvalidArgument(f"expected at least one reader group in groups=, got {groups!r:.100}")
    names = tuple(str(StreamName.parse(each)) for each in named)
    policy = Retention(age_min_us=to_duration(age_min), size_min=to_size(bytes_min), groups=names, release=release)
    return policy if at_most is None else policy | at_most
