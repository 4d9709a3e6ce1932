"""Which readers of a group are presumed dead. Judged by this process's own monotonic clock, so clocks of different machines
need not agree: a reader is dead if the count of its signs of life stands still for a whole lease while one watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.core.group import Member


class _Seen(NamedTuple):
    session: str
    beat: int
    watched_s: float


class Watch:
    """Watches all readers but one, its own. `lease_s`: how long one may be silent."""

    def __init__(self, own: str, lease_s: float) -> None:
        self._own = own
        self._lease_s = lease_s
        self._seen: dict[str, _Seen] = {}
        self._looked_at: float | None = None

    def look(self, members: Mapping[str, Member], now_s: float) -> frozenset[str]:
        """Who is presumed dead, as of the monotonic time `now_s`.

        Time in which nobody looked counts for a fourth of a lease at most: a process that was stopped itself must not take
        the others for dead when it wakes.
        """
        passed = 0.0 if self._looked_at is None else min(now_s - self._looked_at, self._lease_s / 4)
        self._looked_at = now_s
        fresh = {}
        for name, member in members.items():
            seen = self._seen.get(name)
            same = seen is not None and (seen.session, seen.beat) == (member.session, member.beat)
            fresh[name] = _Seen(member.session, member.beat, seen.watched_s + passed if same and seen else 0.0)
        self._seen = fresh
        return frozenset(name for name, seen in fresh.items() if name != self._own and seen.watched_s >= self._lease_s)

    def silent(self, members: Mapping[str, Member], dead: frozenset[str]) -> frozenset[str]:
        """Those of the dead of whom `members` still knows no newer sign of life."""
        return frozenset(
            name
            for name in dead
            if name in members
            and (self._seen[name].session, self._seen[name].beat) == (members[name].session, members[name].beat)
        )
