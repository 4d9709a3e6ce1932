"""The API to read and set the retention and scaling policies of streams."""

from __future__ import annotations

from enum import Enum

from anabranch.catalog.port import Writing
from anabranch.core.display import Displayed
from anabranch.model.ids import Micros
from anabranch.model.policy import Fixed, Scaling, rate_to_json
from anabranch.streams.arguments import StreamKey, arguments_text, request_label, retention_of, scaling_of, stream_key
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info, need_view
from anabranch.streams.requests import Result
from anabranch.streams.retention.policy import Retention
from anabranch.streams.retention.stored import policy_of, put_policy
from anabranch.streams.scaling.stored import put_rate_policy, rate_policy_of


class Unset(Enum):
    """Marks a policy that was not passed, where None is a valid value."""

    UNSET = "unset"


class Policies(Displayed):
    """Reads and sets the policies of streams: how long events are kept, and what decides the number of segments."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._catalog = changes.catalog
        self._runtime = changes.runtime

    def retention(
        self, name: StreamKey, policy: Retention | Unset | None = Unset.UNSET, *, request: str | None = None
    ) -> Retention | None:
        """How long the stream's events are kept; None: forever.

        With a `policy` (`RetainFor`, `RetainBytes`, `RetainConsumed`, or several joined by `|`), or None, sets it. The
        next `Store.retain`, or background upkeep, applies it. A copy of the stream has no policy. Raises GroupNotFound
        for the former name of a group.
        """
        full = stream_key(name)
        if isinstance(policy, Unset):
            with self._catalog.reading() as reading:
                return policy_of(reading, need_info(reading, full).id)
        wanted = retention_of(policy)

        def change(txn: Writing, now: Micros) -> Result:
            put_policy(txn, need_info(txn, full).id, wanted, now)
            return {}

        kept = "forever" if wanted is None else arguments_text(**wanted.to_json()).strip()
        on = None if wanted is not None and wanted.groups else full  # groups are looked up by name
        self._changes.apply(f"retention {request_label(full)} {kept}", request, change, on=on)
        return wanted

    def scaling(self, name: StreamKey, policy: Scaling | Unset = Unset.UNSET, *, request: str | None = None) -> Scaling:
        """What decides the number of segments: `ByEventRate` or `ByByteRate`, else `Fixed` with the current number.

        With a `policy`, sets it. A policy by load is applied by the next `Store.rescale`, or in the background of a
        process whose settings enable it. `Fixed` leaves the segments as they are and scaling to callers of `scale`. A
        copy of the stream is scaled by hand.
        """
        full = stream_key(name)
        if isinstance(policy, Unset):
            with self._catalog.reading() as reading:
                view = need_view(reading, full)
                return rate_policy_of(reading, view.info.id) or Fixed(len(view.current))
        chosen = scaling_of(policy)
        wanted = None if isinstance(chosen, Fixed) else chosen

        def change(txn: Writing, now: Micros) -> Result:
            put_rate_policy(txn, need_info(txn, full).id, wanted, now)
            return {}

        asked = "by hand" if wanted is None else arguments_text(**rate_to_json(wanted)).strip()
        self._changes.apply(f"scaling {request_label(full)} {asked}", request, change, on=full)
        return chosen
