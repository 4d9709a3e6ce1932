"""Compares what listeners were called with against the journal of all changes. Pure: it uses no store.

A listener receives a contiguous range of the changes that concern it, each once. A listener to a group first receives
the present state, if there is one. Listeners of one name in several processes count as one: together they receive
everything, and receive again at most what each was handling when its process ended, or could not save its bookmark for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from anabranch.catalog.state.listener import GroupSummary
from anabranch.notifications.kinds import END_OF_DATA, READERS, SEGMENTS, Notification, apply_notification

__all__ = ["Due", "ListenerRun", "due_to_group"]


@dataclass(eq=False)
class ListenerRun:
    """One listener in one process. It receives all changes after `since`, 0 for one that begins at the head.
    `raised` counts how often it raised; `orderly`: it was closed, and not killed; `failures` returns the failures
    that its subscription has counted."""

    received: list[Notification] = field(default_factory=list)
    since: int = 1 << 62
    raised: int = 0
    orderly: bool = False
    failures: Callable[[], int] = lambda: 0

    @property
    def changes(self) -> list[Notification]:
        """What it received, without the present state."""
        return [each for each in self.received if not _is_present(each)]

    @property
    def again_max(self) -> int:
        """How many notifications its successors may receive again."""
        return self.failures() - self.raised + (not self.orderly)


@dataclass(frozen=True)
class Due:
    """All that a listener of one kind must receive, in the order of the changes, and for a listener to a group the
    known state of the group after each."""

    kind: str | None
    changes: Sequence[Notification]
    summaries: Sequence[tuple[int, GroupSummary]] = ()

    def wrong_in(self, run: ListenerRun, *, named: bool = False) -> list[str]:
        """Returns what one listener received wrongly, or should have received and did not."""
        received = run.received
        if not received:
            return []
        wrong = self._misplaced(received) + [text for each in received for text in self._misstated(each)]
        ids = [each.id for each in run.changes]
        if self.summaries and self.kind in (SEGMENTS, READERS) and not named and not _is_present(received[0]):
            wrong.append(f"a listener was not told of the present {self.kind} first")
        first = received[0].id + 1 if _is_present(received[0]) else received[0].id
        due = [each.id for each in self.changes if first <= each.id <= received[-1].id]
        if ids != due:
            wrong.append(f"a listener heard of the changes {ids}, and was to hear of {due}")
        return wrong

    def wrong_in_name(self, runs: Sequence[ListenerRun], *, done: bool) -> list[str]:
        """The same for all listeners of one name. `done`: the last received everything."""
        wrong = [text for run in runs for text in self.wrong_in(run, named=True)]
        begun = [run.received[0].id for run in runs if run.received and _is_present(run.received[0])]
        received = [each.id for run in runs for each in run.changes]
        if done:
            since = max(begun, default=min(run.since for run in runs))
            missed = [each.id for each in self.changes if each.id > since and each.id not in received]
            if missed:
                wrong.append(f"listeners of one name were never told of {missed}")
        again, allowed = len(received) - len(set(received)), sum(run.again_max for run in runs)
        if again > allowed or len(begun) > 1 + allowed:
            wrong.append(
                f"listeners of one name were told {again} changes again, {allowed} at most were to be: {received}"
            )
        return wrong

    def _misplaced(self, received: Sequence[Notification]) -> list[str]:
        ids = [each.id for each in received]
        wrong = []
        if any(later <= before for before, later in pairwise(ids)):
            wrong.append(f"a listener was told of changes twice or out of order: {ids}")
        if any(map(_is_present, received[1:])):
            wrong.append(f"a listener was told of the present behind a change: {ids}")
        return wrong

    def _misstated(self, each: Notification) -> list[str]:
        if _is_present(each):
            summary = [known for ident, known in self.summaries if ident <= each.id][-1]
            said = (each.segments, tuple(each.detail.get("names", summary.readers)), each.kind == END_OF_DATA)
            true = (summary.segments_left, summary.readers, summary.ended and each.kind == END_OF_DATA)
            return [] if said == true else [f"of the present at {each.id} {said} was told, and it was {true}"]
        for known in self.changes:
            if known.id == each.id and known == each:
                return []
        return [f"a listener heard of {each}, which did not happen"]


def due_to_group(journal: Sequence[Notification], summary: GroupSummary, kind: str) -> Due:
    """Returns what the listeners to a group must receive of one kind. `summary`: the state when the group was
    created."""
    summaries, changes = [(0, summary)], []
    for each in journal:
        summary, told = apply_notification(summary, each)
        changes += [one for one in told if one.kind == kind]
        summaries.append((each.id, summary))
    return Due(kind, changes, summaries)


def _is_present(each: Notification) -> bool:
    if each.kind == READERS:
        return not each.detail["joined"] and not each.detail["left"]
    return each.kind in (SEGMENTS, END_OF_DATA) and each.group is not None and not each.detail
