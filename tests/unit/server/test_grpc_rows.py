"""Events of gRPC's messages as rows."""

from __future__ import annotations

import pytest

from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.model.schema import RAW
from anabranch.model.times import TimeRules
from anabranch.server.events.row_decoder import RowDecoder
from anabranch.server.grpc.rows import batch_of
from anabranch.wire.v1 import store_pb2 as v1

NOW = Micros(1_800_000_000_000_000)


def test_a_time_in_another_unit_is_refused_for_many_events_too() -> None:
    events = [v1.Event(payload=b"a", time_us=NOW + 1), v1.Event(payload=b"b", time_us=1_700_000_000)]
    with pytest.raises(InvalidArgument, match="looks like seconds"):
        batch_of(events, RowDecoder(RAW, TimeRules()), NOW)
    batch = batch_of([events[0], v1.Event(payload=b"c", key="k")], RowDecoder(RAW, TimeRules()), NOW)
    assert batch.column("time").cast("int64").to_pylist() == [NOW + 1, NOW]
