"""The stacks of simulated tasks, for reports of deadlocks."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

_OWN = {"scheduler.py", "simulated.py", "stacks.py", "threading.py"}
_FRAMES_MAX = 12


class Standing(Protocol):
    """What a report needs of a task."""

    name: str
    ident: int
    doing: str


def stacks(tasks: Iterable[Standing]) -> str:
    """Returns one paragraph per task: its name, its last switching point, and its frames outside the scheduler,
    innermost last."""
    frames = sys._current_frames()
    paragraphs = []
    for task in tasks:
        lines = [f"  {task.name}: {task.doing}"]
        frame = frames.get(task.ident)
        if frame is not None:
            steps = [s for s in traceback.extract_stack(frame) if Path(s.filename).name not in _OWN]
            lines += [f"      {s.filename}:{s.lineno} {s.name}: {s.line}" for s in steps[-_FRAMES_MAX:]]
        paragraphs.append("\n".join(lines))
    return "\n".join(paragraphs)
