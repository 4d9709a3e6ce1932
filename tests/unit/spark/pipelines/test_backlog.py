"""The age of the oldest unread event."""

from __future__ import annotations

from anabranch.spark.pipelines import backlog
from anabranch.spark.pipelines.backlog import BacklogAge


def test_the_oldest_unread_event_is_as_old_as_the_look_that_saw_it_first() -> None:
    age = BacklogAge()
    assert age.measure(0, 0, 1.0) == 0
    assert age.measure(0, 5, 2.0) == 0
    assert age.measure(0, 9, 4.5) == 2.5
    assert age.measure(5, 4, 6.0) == 1.5  # what came at 4.5 is left
    assert age.measure(9, 0, 7.0) == 0
    assert age.measure(9, 3, 8.0) == 0
    assert age.measure(10, 2, 9.0) == 1.0


def test_a_long_backlog_is_remembered_in_few_samples() -> None:
    age = BacklogAge()
    for second in range(3 * backlog._SAMPLES_MAX):
        found = age.measure(0, second + 1, float(second))
        assert found == second
    assert len(age._rises) <= backlog._SAMPLES_MAX
