"""The portions in which extents are listed for a compaction."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.log.upkeep.failures import Isolation
from anabranch.log.upkeep.survey import ExtentWindows

EXTENTS = 4


def test_a_log_that_vanishes_between_portions_hides_nothing_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMPACT_EXTENTS_MAX", 2)
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        for name in ("s/a", "s/b"):
            store.streams.create(name)
            for number in range(EXTENTS):
                with store.writer(name) as writer:
                    writer.write(str(number))
        isolation = Isolation(store.catalog, store.runtime, "compact", background=False)
        portions = iter(ExtentWindows(store.catalog, None, isolation))
        assert len(next(portions)[0].extents) == 2
        store.streams.delete("s/a")
        store.collect(horizon_us=0)
        rest = [extent for portion in portions for log in portion for extent in log.extents]
    assert [extent.start for extent in rest] == list(range(EXTENTS))
