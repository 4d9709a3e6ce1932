"""Which readers of a group are presumed dead. Judged by this process's own monotonic clock, so clocks of different
machines need not agree: a reader is dead if its heartbeat count does not change for a whole lease while this process
watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.core.group import Member


class _LastHeartbeat(NamedTuple):
    session: str
    heartbeats: int
    unchanged_s: float


class LivenessMonitor:
    """Watches all readers except its own. `lease_s`: how long a reader may send no heartbeat."""

    def __init__(self, own: str, lease_s: float) -> None:
        self._own = own
        self._lease_s = lease_s
        self._last_heartbeats: dict[str, _LastHeartbeat] = {}
        self._observed_at: float | None = None

    def observe(self, members: Mapping[str, Member], now_s: float) -> frozenset[str]:
        """The readers presumed dead as of the monotonic time `now_s`.

        Time between two calls counts for at most a fourth of a lease: a process that was itself stopped must not
        presume the others dead when it resumes.
        """
        passed = 0.0 if self._observed_at is None else min(now_s - self._observed_at, self._lease_s / 4)
        self._observed_at = now_s
        updated = {}
        for name, member in members.items():
            last = self._last_heartbeats.get(name)
            same = last is not None and (last.session, last.heartbeats) == (member.session, member.heartbeats)
            updated[name] = _LastHeartbeat(
                member.session, member.heartbeats, last.unchanged_s + passed if same and last else 0.0
            )
        self._last_heartbeats = updated
        return frozenset(
            name for name, last in updated.items() if name != self._own and last.unchanged_s >= self._lease_s
        )

    def still_dead(self, members: Mapping[str, Member], dead: frozenset[str]) -> frozenset[str]:
        """Those of `dead` for which `members` has no newer heartbeat either."""
        return frozenset(
            name
            for name in dead
            if name in members
            and (self._last_heartbeats[name].session, self._last_heartbeats[name].heartbeats)
            == (members[name].session, members[name].heartbeats)
        )
