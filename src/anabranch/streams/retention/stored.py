"""Retention policies, stored with their streams.

A policy belongs to one stream as long as the stream exists, across renames. A copy has no policy: it keeps its events
until one is set.

The reader groups that a policy names are its subscribers. Each is identified by the id of the stream that keeps the
group's state, so a renamed group stays a subscriber. A deleted group no longer counts, until a group of its name is
created again. Retention waits for a group that never existed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.retention import RETENTION, WITH_GROUPS, RetentionState, SubscriberState
from anabranch.errors import GroupNotFound
from anabranch.model.group_name import group_name, group_stream
from anabranch.model.ids import Micros, StreamId
from anabranch.streams.directory.former_names import current_name
from anabranch.streams.retention.policy import Retention


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The stored state of one subscriber. `name` is as in the policy, `id` that of the group of this name, None if there
    never was one. Retention removed `events` it had not read, of `bytes` logical bytes in all, last at `passed_at`."""

    name: str
    id: StreamId | None = None
    passed_at: Micros | None = None
    events: int = 0
    bytes: int = 0


def policies(txn: Reading) -> list[tuple[StreamId, Retention]]:
    """All policies. Their groups have the names from when the policy was set."""
    return [(stream, _policy(found)) for stream, found in txn.states(RETENTION)]


def streams_with_groups(txn: Reading) -> list[StreamId]:
    """The streams whose policies wait for reader groups."""
    return [stream for stream, _ in txn.states_found(RETENTION, WITH_GROUPS)]


def any_policy(txn: Reading) -> bool:
    """True if any stream has a policy."""
    return bool(txn.states(RETENTION, limit=1))


def stored_policy(txn: Reading, stream: StreamId) -> Retention | None:
    """The stream's policy, with its groups under the names from when it was set."""
    found = txn.state(RETENTION, stream)
    return None if found is None else _policy(found)


def policy_of(txn: Reading, stream: StreamId) -> Retention | None:
    """The stream's policy, with its groups under their current names; None where its events are kept forever."""
    policy = stored_policy(txn, stream)
    if policy is None or not policy.groups:
        return policy
    # A deleted group may have the name of one that was renamed since.
    return replace(policy, groups=tuple(dict.fromkeys(name_of(txn, each) for each in subscribed(txn, stream))))


def put_policy(txn: Writing, stream: StreamId, policy: Retention | None, now: Micros) -> None:
    """Set the stream's policy; None removes it. Raises GroupNotFound for the former name of a group."""
    if policy is None:
        forget_policy(txn, stream)
    else:
        found = [Subscribed(name, _group(txn, name)) for name in policy.groups]
        put_subscribed(txn, stream, policy, found)
    txn.add_change(stream, "retention", {} if policy is None else policy.to_json(), now=now)


def forget_policy(txn: Writing, stream: StreamId) -> None:
    """Remove the policy: the stream is deleted, or keeps its events forever."""
    txn.drop_state(RETENTION, stream)


# subscribers


def subscribed(txn: Reading, stream: StreamId) -> list[Subscribed]:
    """The subscribers of a stream, in the order of its policy."""
    found = txn.state(RETENTION, stream)
    if found is None:
        return []
    states = {name: found.subscribers[name] for name in found.groups}
    return [Subscribed(name, each.id, each.passed_at, each.events, each.bytes) for name, each in states.items()]


def put_subscribed(txn: Writing, stream: StreamId, policy: Retention, subscribers: Sequence[Subscribed]) -> None:
    """Store the policy with the current state of its subscribers."""
    states = {each.name: SubscriberState(each.id, each.passed_at, each.events, each.bytes) for each in subscribers}
    bounds = (policy.age_us, policy.size, policy.age_min_us, policy.size_min)
    txn.put_state(RETENTION, stream, RetentionState(*bounds, policy.groups, policy.release, states))


def current_group(txn: Reading, subscriber: Subscribed) -> StreamId | None:
    """The id of the subscriber's group: the recorded one if it exists, else the one of its name. None if there is none."""
    if subscriber.id is not None and txn.stream(subscriber.id) is not None:
        return subscriber.id
    info = txn.stream(group_stream(subscriber.name))
    return None if info is None else info.id


def name_of(txn: Reading, subscriber: Subscribed) -> str:
    """The group's current name; if it does not exist, its name in the policy."""
    info = None if subscriber.id is None else txn.stream(subscriber.id)
    return subscriber.name if info is None else group_name(info.name)


def _group(txn: Reading, name: str) -> StreamId | None:
    info = txn.stream(group_stream(name))
    if info is None and (now := current_name(txn, group_stream(name))) is not None:
        raise GroupNotFound(name, group_name(now))
    return None if info is None else info.id


def _policy(found: RetentionState) -> Retention:
    bounds = (found.age_us, found.size, found.age_min_us, found.size_min)
    return Retention(*bounds, found.groups, found.release)
