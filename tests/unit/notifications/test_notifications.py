"""Notifications as pure decisions: what an update of a group tells, and what listeners get, wherever they begin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.catalog.state.listener import GroupSummary
from anabranch.core import cuts
from anabranch.core import group as changes
from anabranch.core.group import GroupState
from anabranch.model.ids import Micros, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.notifications.group_events import GroupEventFilter
from anabranch.notifications.kinds import (
    END_OF_DATA,
    GROUP_RESET,
    READERS,
    SEGMENTS,
    Notification,
    apply_notification,
    changes_of_group_update,
    notification_of,
    present_state,
)
from tests.unit.core.test_cuts import STREAM, World

NOW = Micros(0)
OTHER = StreamId(99)


def test_the_end_is_notified_once_even_with_stale_views() -> None:
    world = World()
    world.begin(FULL_KEY_RANGE)
    open_view = world.view()
    sealed = replace(open_view, info=replace(open_view.info, sealed=True))
    starts = changes.offsets_of(cuts.head_cut(open_view))
    state = GroupState((STREAM,), starts, {}, starts)
    told = []
    for view in (open_view, sealed, open_view, sealed):  # a reader whose view is older than that of another
        after = changes.advance(state, {STREAM: view})
        told += changes_of_group_update("s/g", state, after)
        state = after
    assert [kind for kind, _ in told] == [END_OF_DATA]
    again = changes.reset(state, starts)
    assert [kind for kind, _ in changes_of_group_update("s/g", state, again)] == [GROUP_RESET]
    assert [kind for kind, _ in changes_of_group_update("s/g", again, changes.advance(again, {STREAM: sealed}))] == [
        END_OF_DATA
    ]


def test_heartbeats_and_positions_cause_no_notification() -> None:
    state = changes.join(GroupState((STREAM,), {}, {}, {}), "r", "one", NOW)
    assert changes_of_group_update("s/g", state, changes.record_heartbeat(state, "r")) == []
    assert changes_of_group_update("s/g", state, changes.join(state, "r", "one", NOW)) == []  # asked again
    ((kind, detail),) = changes_of_group_update("s/g", state, changes.join(state, "r", "two", NOW))
    assert (kind, detail["joined"], detail["left"], detail["readers"]) == (READERS, ["r"], ["r"], 1)


def test_internal_changes_are_no_notifications() -> None:
    def told(kind: str, name: str | None, **detail: Any) -> Notification | None:
        return notification_of(1, NOW, kind, STREAM, name, detail)

    assert told("created", "s/_group-g") is None
    assert told("truncated", "_store/notifications") is None
    assert told("scope created", None, scope="_store") is None
    assert told("scope created", None, scope="s") is not None
    assert told(READERS, "s/_group-g", group="s/g", readers=1) is not None


def rows() -> st.SearchStrategy[Notification]:
    streams = st.builds(
        lambda stream, kind, count: Notification(0, NOW, kind, "s/x", stream, segments=count),
        st.sampled_from([STREAM, OTHER, StreamId(7)]),
        st.sampled_from(["scaled", "appended", "truncated", "tagged"]),
        st.none() | st.integers(1, 9),
    )
    groups = st.builds(
        lambda group, kind, names: Notification(
            0, NOW, kind, group=group, readers=len(names), detail={"names": sorted(names)}
        ),
        st.sampled_from(["s/g", "s/other"]),
        st.sampled_from([READERS, END_OF_DATA, GROUP_RESET]),
        st.sets(st.sampled_from(["a", "b"])),
    )
    return st.one_of(streams, groups)


@settings(max_examples=40, deadline=None)
@given(st.lists(rows(), max_size=20))
def test_the_summary_matches_the_last_notifications(found: list[Notification]) -> None:
    summary, told = GroupSummary("s/g", {STREAM: 2, OTHER: 1}), list[Notification]()
    for i, each in enumerate(found, 1):
        summary, more = apply_notification(summary, replace(each, id=i))
        told += more
    counts = {STREAM: 2, OTHER: 1}
    counts |= {each.stream_id: each.segments for each in found if each.stream_id in counts and each.segments}
    own = [each for each in found if each.group == "s/g"]
    ends = [each.kind for each in own if each.kind in (END_OF_DATA, GROUP_RESET)]
    names = [each.detail["names"] for each in own if each.kind == READERS]
    assert summary.ended == (ends[-1:] == [END_OF_DATA])
    assert summary.segments_left == (0 if summary.ended else sum(counts.values()))
    assert list(summary.readers) == (names[-1] if names else [])
    said = [each.segments for each in told if each.kind == SEGMENTS]
    assert not said or said[-1] == summary.segments_left
    assert [each.id for each in told] == sorted(each.id for each in told)
    present = {each.kind for each in present_state(summary, 0, NOW)}
    assert present == ({SEGMENTS, READERS, END_OF_DATA} if summary.ended else {SEGMENTS, READERS})


@settings(max_examples=40, deadline=None)
@given(st.lists(rows(), max_size=20), st.sampled_from([SEGMENTS, READERS, "scaled", END_OF_DATA]))
def test_resuming_with_a_saved_summary_gives_the_same_notifications(found: list[Notification], kind: str) -> None:
    found = [replace(each, id=i) for i, each in enumerate(found, 1)]
    summary = GroupSummary("s/g", {STREAM: 2, OTHER: 1})
    filter_ = GroupEventFilter(lambda: summary, kind, keeps_summaries=True)
    told = [*filter_.initial(0, NOW), *(more for each in found for more in filter_.translate(each))]
    for place, each in enumerate(told):
        behind = filter_.summary_after(each.id)
        again = GroupEventFilter(lambda: summary, kind, summary=behind)
        assert [more for one in found if one.id > each.id for more in again.translate(one)] == told[place + 1 :]
