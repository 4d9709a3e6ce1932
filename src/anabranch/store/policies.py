"""The policies of a store, which also checks the reader groups that a policy names."""

from __future__ import annotations

from anabranch.store.subscribers import StoreSubscribers
from anabranch.streams.arguments import StreamKey
from anabranch.streams.change import Changes
from anabranch.streams.policies import Policies, Unset
from anabranch.streams.retention.policy import Retention


class StorePolicies(Policies):
    """`Policies` that refuse a subscriber which does not read the stream."""

    def __init__(self, changes: Changes, subscribers: StoreSubscribers) -> None:
        super().__init__(changes)
        self._subscribers = subscribers

    def retention(
        self, name: StreamKey, policy: Retention | Unset | None = Unset.UNSET, *, request: str | None = None
    ) -> Retention | None:
        """As `Policies.retention`. Raises InvalidArgument for a group that does not read the stream. For a group that
        does not exist yet, retention waits."""
        if isinstance(policy, Retention) and policy.groups:
            self._subscribers.check(name, policy)
        return super().retention(name, policy, request=request)
