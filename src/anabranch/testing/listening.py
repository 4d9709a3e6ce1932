"""What listeners were told, held against the journal of all changes. Pure: it knows no store.

A listener is told of a stretch of the changes that concern it, without a gap and each once. One that listens to a group is
told of the present first, where there is one. The lives of listeners of one name are one listener: together they are told of
everything, and again at most of what each life was at when its process ended, or could not note down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from anabranch.core.notifications import END_OF_DATA, READERS, SEGMENTS, GroupPicture, Notification, step

__all__ = ["Due", "Life", "due_to_group"]


@dataclass(eq=False)
class Life:
    """One listener in one process. It is there for all changes behind `since`, 0 for one that begins at the head. `raised` counts how often it raised; `orderly`: it was closed, and not killed;
    `failures` says what its subscription has counted."""

    heard: list[Notification] = field(default_factory=list)
    since: int = 1 << 62
    raised: int = 0
    orderly: bool = False
    failures: Callable[[], int] = lambda: 0

    @property
    def changes(self) -> list[Notification]:
        """What it heard but for the present state."""
        return [each for each in self.heard if not _is_present(each)]

    @property
    def again_max(self) -> int:
        """How many notifications its successors may be told of again."""
        return self.failures() - self.raised + (not self.orderly)


@dataclass(frozen=True)
class Due:
    """All that a listener of one kind is to be told of in the order of the changes, and for one of a group what is
    known of that behind each."""

    kind: str | None
    changes: Sequence[Notification]
    pictures: Sequence[tuple[int, GroupPicture]] = ()

    def wrong_in(self, life: Life, *, named: bool = False) -> list[str]:
        """What one life should not have been told, or should have been and was not."""
        heard = life.heard
        if not heard:
            return []
        wrong = self._misplaced(heard) + [text for each in heard for text in self._misstated(each)]
        ids = [each.id for each in life.changes]
        if self.pictures and self.kind in (SEGMENTS, READERS) and not named and not _is_present(heard[0]):
            wrong.append(f"a listener was not told of the present {self.kind} first")
        first = heard[0].id + 1 if _is_present(heard[0]) else heard[0].id
        due = [each.id for each in self.changes if first <= each.id <= heard[-1].id]
        if ids != due:
            wrong.append(f"a listener heard of the changes {ids}, and was to hear of {due}")
        return wrong

    def wrong_in_name(self, lives: Sequence[Life], *, done: bool) -> list[str]:
        """The same of all lives of one name. `done`: the last was told of everything."""
        wrong = [text for life in lives for text in self.wrong_in(life, named=True)]
        begun = [life.heard[0].id for life in lives if life.heard and _is_present(life.heard[0])]
        heard = [each.id for life in lives for each in life.changes]
        if done:
            since = max(begun, default=min(life.since for life in lives))
            missed = [each.id for each in self.changes if each.id > since and each.id not in heard]
            if missed:
                wrong.append(f"listeners of one name were never told of {missed}")
        again, allowed = len(heard) - len(set(heard)), sum(life.again_max for life in lives)
        if again > allowed or len(begun) > 1 + allowed:
            wrong.append(
                f"listeners of one name were told {again} changes again, {allowed} at most were to be: {heard}"
            )
        return wrong

    def _misplaced(self, heard: Sequence[Notification]) -> list[str]:
        ids = [each.id for each in heard]
        wrong = []
        if any(later <= before for before, later in pairwise(ids)):
            wrong.append(f"a listener was told of changes twice or out of order: {ids}")
        if any(map(_is_present, heard[1:])):
            wrong.append(f"a listener was told of the present behind a change: {ids}")
        return wrong

    def _misstated(self, each: Notification) -> list[str]:
        if _is_present(each):
            picture = [known for ident, known in self.pictures if ident <= each.id][-1]
            said = (each.segments, tuple(each.detail.get("names", picture.readers)), each.kind == END_OF_DATA)
            true = (picture.count, picture.readers, picture.ended and each.kind == END_OF_DATA)
            return [] if said == true else [f"of the present at {each.id} {said} was told, and it was {true}"]
        for known in self.changes:
            if known.id == each.id and known == each:
                return []
        return [f"a listener heard of {each}, which did not happen"]


def due_to_group(journal: Sequence[Notification], picture: GroupPicture, kind: str) -> Due:
    """What the listeners of a group are to be told of one kind. `picture`: what was known when the group was made."""
    pictures, changes = [(0, picture)], []
    for each in journal:
        picture, told = step(picture, each)
        changes += [one for one in told if one.kind == kind]
        pictures.append((each.id, picture))
    return Due(kind, changes, pictures)


def _is_present(each: Notification) -> bool:
    if each.kind == READERS:
        return not each.detail["joined"] and not each.detail["left"]
    return each.kind in (SEGMENTS, END_OF_DATA) and each.group is not None and not each.detail
