"""What the run of a hot standby does now. Its driver says so; its sources are in processes of their own on the same machine,
and read it from a file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["Role", "StandbyRole", "read_role"]

Role: TypeAlias = Literal["follows", "leads", "plans", "ended"]
"""It repeats the leader's batches; it holds the pipeline, and finishes what the leader planned; it plans batches of its own;
it has ended."""


class StandbyRole:
    """The role of a run, which begins as one that follows. Thread-safe. Belongs to the driver."""

    def __init__(self, file: Path) -> None:
        """`file` is where its sources read the role; its folder has to exist."""
        self.file = file
        self._changed = threading.Condition()
        self._role: Role = "follows"
        self._write()

    @property
    def now(self) -> Role:
        """The role."""
        return self._role

    def become(self, role: Role) -> None:
        """Change the role, and wake who waits."""
        with self._changed:
            self._role = role
            self._write()
            self._changed.notify_all()

    def wait(self, role: Role, timeout_s: float) -> None:
        """Return once the role is no longer this one, or after a while."""
        with self._changed:
            if self._role == role:
                self._changed.wait(timeout_s)

    def _write(self) -> None:
        beside = self.file.with_suffix(".new")
        beside.write_text(self._role, encoding="ascii")
        beside.replace(self.file)


def read_role(file: str) -> Role:
    """The role in a file. Without one, the driver is gone or removed it: it has ended."""
    try:
        with open(file, encoding="ascii") as opened:
            found = opened.read()
    except FileNotFoundError:
        return "ended"
    return found  # type: ignore[return-value]  # written above
