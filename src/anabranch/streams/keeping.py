"""How long events are kept and who scales, as methods of the stream manager."""

from __future__ import annotations

from enum import Enum

from anabranch.catalog.port import Writing
from anabranch.model.ids import Micros
from anabranch.model.policy import Fixed, Scaling, rate_to_json
from anabranch.model.retention import Retention
from anabranch.streams.arguments import Which, retention_of, said, scaling_of, shown, which
from anabranch.streams.change import Changes
from anabranch.streams.find import need_info, need_view
from anabranch.streams.requests import Result
from anabranch.streams.retention import policy_of, put_policy
from anabranch.streams.scaling import put_rate_policy, rate_policy_of


class Unsaid(Enum):
    """A policy that was not given, where None says something."""

    UNSAID = "unsaid"


class Keeping(Changes):
    """What `Streams` does with policies of retention and of scaling."""

    def retention(
        self, name: Which, policy: Retention | Unsaid | None = Unsaid.UNSAID, *, request: str | None = None
    ) -> Retention | None:
        """How long the stream's events are kept; None: for ever.

        With a `policy` (`RetainFor`, `RetainBytes`, or both joined by `|`), or None, from now on so: the next
        `Store.retain`, or the upkeep in the background, carries it out. A copy of the stream has no policy.
        """
        full = which(name)
        if isinstance(policy, Unsaid):
            with self._catalog.reading() as reading:
                return policy_of(reading, need_info(reading, full).id)
        wanted = retention_of(policy)

        def act(txn: Writing, now: Micros) -> Result:
            put_policy(txn, need_info(txn, full).id, wanted, now)
            return {}

        kept = "for ever" if wanted is None else said(**wanted.to_json()).strip()
        self._change(f"retention {shown(full)} {kept}", request, act, on=full)
        return wanted

    def scaling(self, name: Which, policy: Scaling | Unsaid = Unsaid.UNSAID, *, request: str | None = None) -> Scaling:
        """Who decides how many segments the stream has: `ByEventRate` or `ByByteRate`, else `Fixed` with as many as now.

        With a `policy` from now on so. One by load is carried out by the next `Store.rescale`, or in the background of a
        process whose settings say so; `Fixed` leaves scaling to whoever calls `scale`, and the segments as they are. A
        copy of the stream is scaled by hand.
        """
        full = which(name)
        if isinstance(policy, Unsaid):
            with self._catalog.reading() as reading:
                view = need_view(reading, full)
                return rate_policy_of(reading, view.info.id) or Fixed(len(view.current))
        chosen = scaling_of(policy)
        wanted = None if isinstance(chosen, Fixed) else chosen

        def act(txn: Writing, now: Micros) -> Result:
            put_rate_policy(txn, need_info(txn, full).id, wanted, now)
            return {}

        asked = "by hand" if wanted is None else said(**rate_to_json(wanted)).strip()
        self._change(f"scaling {shown(full)} {asked}", request, act, on=full)
        return chosen
