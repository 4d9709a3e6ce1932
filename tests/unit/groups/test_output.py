"""Output units of a group reader: their numbers, and which of them count as written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import AppendUncertain, Conflict
from anabranch.groups.output import OutputUnits


class Group:
    """The reader's membership and its outputs: `published` has the numbers of what was published."""

    session = "session"

    def __init__(self) -> None:
        self.published: list[int] = []
        self.failure: Exception | None = None
        self.landed = False  # what fails is published nevertheless

    def commit(self, _positions: Any, publish: Callable[[Any], None]) -> None:
        publish(None)

    def stage(self, outputs: Any) -> Any:
        return [outputs]

    def publish(self, _staged: Any, _part: Any, *, series: str, number: int) -> bool:
        if self.published and self.published[-1] >= number:
            return False
        if self.failure is None or self.landed:
            self.published.append(number)
        if self.failure is not None:
            raise self.failure
        return True

    def last(self, _series: str) -> int:
        return self.published[-1] if self.published else 0


def test_a_refused_unit_does_not_count_as_written() -> None:
    group: Any = Group()
    units = OutputUnits(group, group, series="s")
    group.failure = Conflict("refused")
    with pytest.raises(Conflict):
        units.commit({}, {"s/out": 1}, handed_out=1)
    group.failure = None
    units.commit({}, {}, handed_out=2)
    assert units.written == group.last("s") == 0
    units.commit({}, {"s/out": 2}, handed_out=3)
    assert units.written == group.last("s") > 0


@pytest.mark.parametrize("landed", [False, True])
def test_a_unit_of_unknown_outcome_counts_once_it_is_written(landed: bool) -> None:
    group: Any = Group()
    units = OutputUnits(group, group, series="s")
    group.failure, group.landed = AppendUncertain("lost"), landed
    with pytest.raises(AppendUncertain):
        units.commit({}, {"s/out": 1}, handed_out=1)
    assert units.written == 0
    group.failure = None
    units.commit({}, {"s/out": 1}, handed_out=1)
    assert units.written == group.last("s") == 1
    assert OutputUnits(group, group, series="s").written == 1
