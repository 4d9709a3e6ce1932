"""Retention policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from anabranch.catalog.state.kind import STREAM_KEY, StateKind, only_key, state_kind
from anabranch.model.ids import Micros, StreamId


@dataclass(frozen=True, slots=True)
class SubscriberState:
    """A reader group that the policy waits for: the `id` of the stream that keeps its state, if it ever existed. Retention
    removed `events` that it had not read, of `bytes` logical bytes in all; `passed_at` is the last time."""

    id: StreamId | None = None
    passed_at: Micros | None = None
    events: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RetentionState:
    """A policy as `streams.retention.policy.Retention` describes it. `subscribers` has a member for each of its
    groups."""

    age_us: int | None
    size: int | None
    age_min_us: int
    size_min: int
    groups: tuple[str, ...]
    release: Literal["position", "checkpoint"]
    subscribers: Mapping[str, SubscriberState]


WITH_GROUPS: Final = "groups"  # the lookup of policies that wait for reader groups


def _lookup(_stream: StreamId, row: RetentionState) -> str | None:
    return WITH_GROUPS if row.groups else None


RETENTION: Final[StateKind[StreamId, RetentionState]] = state_kind(
    "retention",
    about="Retention policies of streams, and the state of the reader groups that they wait for.",
    found_by="`groups`, if it waits for reader groups",
    key=STREAM_KEY,
    value=RetentionState,
    lookup=_lookup,
    example=(
        StreamId(0x2BCD55E1E5C62EE7),
        RetentionState(
            604_800_000_000,
            None,
            0,
            0,
            ("iot/readers",),
            "position",
            {"iot/readers": SubscriberState(StreamId(0x1122334455667788), Micros(1_767_225_600_000_000), 12, 640)},
        ),
    ),
)


ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class RetentionRun:
    """`at`: when the last run began."""

    at: Micros


RETENTION_RUN: Final[StateKind[str, RetentionRun]] = state_kind(
    "retention_run",
    about="When all retention policies were last applied.",
    key=only_key(ALL),
    value=RetentionRun,
    example=(ALL, RetentionRun(Micros(1_767_225_600_000_000))),
)
