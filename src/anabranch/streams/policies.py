"""The API to read and set the policies of streams: retention, scaling and load."""

from __future__ import annotations

from enum import Enum

import pyarrow as pa

from anabranch.catalog.port import Writing
from anabranch.catalog.state.load import LOAD_POLICY
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.model.load_policy import LoadPolicy, SampleAbove, load_policy_of, load_policy_to_json
from anabranch.model.policy import Fixed, Scaling, rate_to_json
from anabranch.model.stream import StreamInfo
from anabranch.streams.arguments import StreamKey, arguments_text, request_label, retention_of, scaling_of, stream_key
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info, need_view
from anabranch.streams.retention.policy import Retention
from anabranch.streams.retention.stored import policy_of, put_policy
from anabranch.streams.scaling.stored import put_rate_policy, rate_policy_of


class Unset(Enum):
    """Marks a policy that was not passed, where None is a valid value."""

    UNSET = "unset"


class Policies(Displayed):
    """Reads and sets the policies of streams: how long events are kept, what decides the number of segments, and what
    brokers do with appends above a rate."""

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

        def change(txn: Writing, now: Micros) -> None:
            put_policy(txn, need_info(txn, full).id, wanted, now)

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

        def change(txn: Writing, now: Micros) -> None:
            put_rate_policy(txn, need_info(txn, full).id, wanted, now)

        asked = "by hand" if wanted is None else arguments_text(**rate_to_json(wanted)).strip()
        self._changes.apply(f"scaling {request_label(full)} {asked}", request, change, on=full)
        return chosen

    def load(
        self, name: StreamKey, policy: LoadPolicy | Unset | None = Unset.UNSET, *, request: str | None = None
    ) -> LoadPolicy | None:
        """What brokers do with appends above a rate: `RejectAbove` or `SampleAbove`; None: all are appended.

        With a `policy`, or None, sets it. Each process of a broker holds its own callers to it, a second later at the
        latest; processes that open the store itself are not limited. A copy of the stream has no policy. To sample, the
        stream needs the column for the weights; raises InvalidArgument without it.
        """
        full = stream_key(name)
        if isinstance(policy, Unset):
            with self._catalog.reading() as reading:
                return reading.state(LOAD_POLICY, need_info(reading, full).id)
        wanted = load_policy_of(policy)
        stored = {} if wanted is None else load_policy_to_json(wanted)

        def change(txn: Writing, now: Micros) -> None:
            info = need_info(txn, full)
            if wanted is None:
                txn.drop_state(LOAD_POLICY, info.id)
            else:
                if isinstance(wanted, SampleAbove):
                    _check_weight(info, wanted.weight)
                txn.put_state(LOAD_POLICY, info.id, wanted)
            txn.add_change(info.id, "load", stored, now=now)

        asked = "unlimited" if wanted is None else arguments_text(**stored).strip()
        self._changes.apply(f"load {request_label(full)} {asked}", request, change, on=full)
        return wanted


def _check_weight(info: StreamInfo, column: str) -> None:
    """Raises InvalidArgument."""
    columns = info.schema.columns
    if info.schema.raw or column not in columns.names or columns.field(column).type != pa.float64():
        raise InvalidArgument(
            f"sampled events of '{info.name}' have their weights in a column '{column}' of type double, which the stream "
            "lacks: add it, or reject instead"
        )
    if column in (info.schema.key, info.schema.time) or not columns.field(column).nullable:
        raise InvalidArgument(
            f"expected a nullable column for the weights of '{info.name}' that is neither its key nor its time, got '{column}'"
        )
