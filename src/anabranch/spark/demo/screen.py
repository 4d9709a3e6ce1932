"""The demo in the terminal: a page that lives on a TTY, lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from anabranch.errors import MissingExtra
from anabranch.spark.demo.view import Closed, Meter, sparkline
from anabranch.spark.pipeline_progress import QueryProgress
from anabranch.spark.pipeline_screen import progress_table

try:
    from rich import box
    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text
except ImportError as exc:
    raise MissingExtra("the demo", "demo") from exc

__all__ = ["LinesScreen", "LiveScreen", "Scene", "Screen", "page"]

WINDOWS_SHOWN: Final = 8
LINES_S: Final = 5.0


@dataclass(slots=True)
class Scene:
    """All that can be shown at one moment. Times in seconds since the demo began; `length_s` None for open-ended."""

    source: str
    targets: Sequence[str]
    origin: str
    elapsed_s: float = 0.0
    length_s: float | None = None
    written: int = 0
    before: int = 0
    stage: str = ""
    meters: Sequence[Meter] = ()
    progress: Sequence[QueryProgress] = ()
    closed: list[Closed] = field(default_factory=list)
    closed_count: int = 0


class Screen(Protocol):
    """Shows scenes."""

    def show(self, scene: Scene) -> None:
        """Show what is new."""
        ...

    def say(self, text: str) -> None:
        """Tell something once."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was, with the last scene in it."""
        ...


class LiveScreen:
    """For a terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=False)
        self._live.start()
        self._spinner = Spinner("dots", style="yellow")

    def show(self, scene: Scene) -> None:
        """See `Screen`."""
        self._live.update(page(scene, self._spinner, width=self._live.console.width))

    def say(self, text: str) -> None:
        """See `Screen`."""
        self._live.console.print(text)

    def close(self) -> None:
        """See `Screen`."""
        self._live.stop()


class LinesScreen:
    """For pipes and logs: a line where something happened, and now and then how it stands."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._told = 0
        self._due_s = LINES_S

    def show(self, scene: Scene) -> None:
        """See `Screen`."""
        if scene.stage != self._stage:
            self._stage = scene.stage
            if scene.stage:
                self._line(scene, scene.stage)
        fresh = min(scene.closed_count - self._told, len(scene.closed))
        self._told = scene.closed_count
        for window in scene.closed[len(scene.closed) - fresh :]:
            self._line(scene, f"{window.target} closed {window.bounds}: {window.events:,} events; {window.text}")
        if scene.elapsed_s >= self._due_s:
            self._due_s = scene.elapsed_s + LINES_S
            self._line(scene, _status(scene))

    def say(self, text: str) -> None:
        """See `Screen`."""
        self._console.print(text, soft_wrap=True)

    def close(self) -> None:
        """See `Screen`."""

    def _line(self, scene: Scene, text: str) -> None:
        minutes, seconds = divmod(int(scene.elapsed_s), 60)
        self._console.print(f"{minutes:02}:{seconds:02}  {text}", soft_wrap=True, markup=False, highlight=False)


def _status(scene: Scene) -> str:
    text = f"{scene.written:,} events written to {scene.source}"
    for each in scene.progress:
        if each.batch >= 0:
            text += f"; {each.target} batch {each.batch} in {each.batch_ms:,} ms, lag {each.lag:,}"
    return text


# the page


def page(scene: Scene, spinner: RenderableType | None = None, *, width: int = 100) -> RenderableType:
    """The whole screen, `width` columns wide."""
    parts: list[RenderableType] = [_heading(scene), "", _flow(scene), ""]
    if scene.progress and any(each.batch >= 0 for each in scene.progress):
        parts.append(progress_table(scene.progress, width=width))
    if scene.stage not in ("running", ""):
        waiting = Table.grid(padding=(0, 1))
        waiting.add_row(spinner or "", Text(f"{scene.stage} …", style="yellow"))
        parts += [waiting, ""]
    parts.append(_windows(scene))
    return Group(*parts)


def _heading(scene: Scene) -> RenderableType:
    grid = Table.grid(expand=True)
    grid.add_column()
    grid.add_column(justify="right")
    length = "" if scene.length_s is None else f" / {_minutes(scene.length_s)}"
    grid.add_row(
        Text.assemble(("anabranch demo", "bold"), ("   " + scene.origin, "dim")),
        Text(f"{_minutes(scene.elapsed_s)}{length}", style="bold"),
    )
    return grid


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


def _flow(scene: Scene) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", min_width=14)
    grid.add_column(justify="right", min_width=16)
    grid.add_column(style="green")
    before = f" after {scene.before:,} before" if scene.before else ""
    grid.add_row(scene.source, Text(f"{scene.written:,} events", style="bold"), Text(f"written{before}", style="dim"))
    for meter in scene.meters:
        grid.add_row(f"  {meter.name}", meter.text, sparkline(meter.past))
    return grid


def _windows(scene: Scene) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, expand=True)
    table.add_column("window closed (UTC)", no_wrap=True)
    table.add_column("result stream", style="cyan", no_wrap=True)
    table.add_column("events", justify="right", no_wrap=True)
    table.add_column("mean of the window", overflow="ellipsis", no_wrap=True, ratio=1)
    shown = scene.closed[-WINDOWS_SHOWN:]
    for window in reversed(shown):
        table.add_row(window.bounds, window.target, f"{window.events:,}", window.text)
    for _ in range(WINDOWS_SHOWN - len(shown)):  # the page keeps its height, so it does not jump
        table.add_row("", "", "", "")
    return table
