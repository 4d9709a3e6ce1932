"""Progress on stderr, shown only if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from anabranch.core.terminal import terminal_text


class ProgressMeter:
    """A line that shows the progress of one task. Does nothing if stderr is not a terminal."""

    def __init__(self, what: str, *, total: int | None = None, unit_bytes: bool = True) -> None:
        self._what = what
        self._total = total
        self._unit_bytes = unit_bytes
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressMeter:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            counted = DownloadColumn() if self._unit_bytes else MofNCompleteColumn()
            columns = [
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                counted,
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            ]
            self._bar = Progress(
                *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._bar.start()
            self._task = self._bar.add_task(terminal_text(self._what), total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Removes the line while something else is printed."""
        if self._bar is not None:
            self._bar.stop()
        yield
        if self._bar is not None:
            self._bar.start()

    def show(self, what: str, done: int, total: int | None) -> None:
        """Shows `done` of `total` (None or 0: unknown) for the step `what`. Usable as
        `anabranch.log.progress.ProgressCallback`."""
        if self._bar is not None:
            self._bar.update(self._task, description=terminal_text(what), completed=done, total=total or None)
