"""Durations in seconds, wherever a caller gives one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.model.seconds import check_seconds
from anabranch.store import Store

TAKERS: dict[str, Callable[[Store, Any], object]] = {
    "lease_s of a group": lambda store, s: store.groups.open("s/g", streams=["s/a"], lease_s=s),
    "refresh_s of a group": lambda store, s: store.groups.open("s/g", streams=["s/a"], refresh_s=s),
    "checkpoint_s of a group": lambda store, s: store.groups.open("s/g", streams=["s/a"], checkpoint_s=s),
    "lease_s of a transaction": lambda store, s: store.transaction(lease_s=s),
    "idle_s of a watermark": lambda store, s: store.watermarks.idle("s/a", s),
    "note_time_s of a writer": lambda store, s: store.writer("s/a", note_time_s=s),
}
WRONG = [
    pytest.param(10**5000, id="huge"),
    pytest.param(-(10**5000), id="minus huge"),
    *(1e300, -1.0, float("nan"), float("inf"), "soon", True),
]


@pytest.mark.parametrize("taker", sorted(TAKERS.keys() - {"note_time_s of a writer"}))
def test_what_is_0_in_microseconds_is_not_above_0(taker: str) -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        store.streams.create("s/a", schema=pa.schema([("n", pa.int64())]))
        with pytest.raises(InvalidArgument):
            TAKERS[taker](store, 1e-7)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("taker", TAKERS)
def test_what_is_no_duration_is_an_invalid_argument(taker: str, wrong: Any) -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        store.streams.create("s/a", schema=pa.schema([("n", pa.int64())]))
        with pytest.raises(InvalidArgument):
            TAKERS[taker](store, wrong)


@pytest.mark.parametrize("good", [0, 1, 0.5, np.int64(3), np.float32(1.5), 86_400 * 365])
def test_numbers_of_all_kinds_are_seconds(good: Any) -> None:
    check_seconds("wait_s", good)
