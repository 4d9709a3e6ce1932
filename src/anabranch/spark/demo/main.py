"""The demo from its first second to the proof."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Final, Protocol

from rich.console import Console

from anabranch.errors import AnabranchError
from anabranch.spark.checkpoint_place import checkpoint_place
from anabranch.spark.demo import report
from anabranch.spark.demo.collector import STREAM, Collector
from anabranch.spark.demo.job import Job, Launch
from anabranch.spark.demo.proof import Claim, Proof, prove
from anabranch.spark.demo.replay import Replay, load
from anabranch.spark.demo.screen import LinesScreen, LiveScreen, Scene, Screen
from anabranch.spark.demo.view import WINDOWS_KEPT, HostMeters, Meters, RowMeters, Tailing, closed_windows
from anabranch.spark.pipeline_checkpoint import committed
from anabranch.spark.pipeline_screen import interrupts
from anabranch.store import Store, connect

__all__ = ["STORE", "run"]

STORE: Final = "./anabranch-demo"
SECONDS: Final = 60.0
FRAME_S: Final = 0.125
DRAIN_S: Final = 20.0  # how long the queries may take to read what was written last


class Feed(Protocol):
    """Where the events come from."""

    events: int
    error: AnabranchError | None

    def close(self) -> None:
        """Stop; what was written is durable."""
        ...


def host_job() -> Job:
    """The shipped pipeline over this machine's measurements."""
    claims = [
        Claim(STREAM, "at", f"host/{name}", f"host/{name}_late", size * 1_000_000, 5_000_000)
        for name, size in (("per_5s", 5), ("smooth", 20))
    ]
    return Job("demo", files("anabranch.spark.demo").joinpath("host.sql").read_text(), tuple(claims))


def run(
    store: str | os.PathLike[str] = STORE,
    *,
    seconds: float | None = None,
    file: str | os.PathLike[str] | None = None,
    time: str | None = None,
    key: str | None = None,
    console: Console | None = None,
    on_frame: Callable[[Scene], None] | None = None,
) -> int:
    """Collect, aggregate, show and prove; returns the exit code: 0, or 1 if the proof does not hold or Spark failed.

    Runs for `seconds` (default 60; 0: until Ctrl-C), or with a `file` until its rows are aggregated. `time` and `key`
    name columns of the file where they are not found by themselves. `on_frame` sees what is shown.

    Ctrl-C ends it in order at any moment; a later run with the same store goes on where this one stopped. Raises
    InvalidArgument for a file that can't be used, PipelineRunning where the store's demo runs already.
    """
    console = console or Console(file=sys.stdout)
    rows = None if file is None else load(Path(file), time=time, key=key)
    length = SECONDS if seconds is None and rows is None else seconds or None
    with interrupts() as interrupted, connect(store) as opened:
        demo = (
            _Demo(opened, host_job(), Collector(opened), HostMeters(), "this machine's measurements", "source", length)
            if rows is None
            else _Demo(
                opened,
                rows.job(),
                Replay(opened, rows),
                RowMeters(rows.values),
                rows.path.name,
                rows.grouped_key,
                length,
            )
        )
        return demo.run(console, interrupted.is_set, on_frame or (lambda scene: None))


class _Demo:
    def __init__(
        self, store: Store, job: Job, feed: Feed, meters: Meters, origin: str, key: str | None, length_s: float | None
    ) -> None:
        self._store = store
        self._clock = store.runtime.clock
        self._began = self._clock.monotonic()
        self._job = job
        self._feed = feed
        self._meters = meters
        self._key = key
        self._source = job.claims[0].source
        self._targets = [claim.target for claim in job.claims]
        self._tails = {name: Tailing(store, name) for name in (self._source, *self._targets)}
        self._launch = Launch(store, job)
        self._batch_ms: dict[tuple[str, int], int] = {}
        before = store.streams.distance(self._source).events
        self.scene = Scene(self._source, self._targets, origin, length_s=length_s, before=before, meters=meters.meters)

    def run(self, console: Console, stopped: Callable[[], bool], on_frame: Callable[[Scene], None]) -> int:
        """See `run`."""
        screen: Screen = LiveScreen(console) if console.is_terminal else LinesScreen(console)
        try:
            while not stopped() and not self._over():
                self._look()
                screen.show(self.scene)
                on_frame(self.scene)
                self._store.runtime.tasks.sleep(FRAME_S)
            self._drain(screen, stopped)
        finally:
            self._end(screen)
        return self._tell(console)

    # while it runs

    def _over(self) -> bool:
        if self._feed.error is not None or self._launch.error is not None:
            return True
        if self._launch.pipeline is not None and not self._launch.pipeline.active:
            return True
        length = self.scene.length_s
        if length is not None and self._elapsed() >= length:
            return True
        return isinstance(self._feed, Replay) and self._feed.done and self._launch.pipeline is not None

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._began

    def _look(self) -> None:
        scene = self.scene
        scene.elapsed_s = self._elapsed()
        scene.written = self._feed.events
        scene.stage = self._launch.stage
        self._meters.take(self._tails[self._source].rows())
        for target in self._targets:
            found = closed_windows(target, self._tails[target].rows())
            scene.closed = (scene.closed + found)[-WINDOWS_KEPT:]
            scene.closed_count += len(found)
        if self._launch.pipeline is not None:
            scene.progress = self._launch.pipeline.last_progress
            if scene.stage == "running" and not all(each.batch >= 0 for each in scene.progress):
                scene.stage = "the first batch is under way"
            for each in scene.progress:
                if each.batch >= 0:
                    self._batch_ms[each.target, each.batch] = each.batch_ms

    # its end

    def _drain(self, screen: Screen, stopped: Callable[[], bool]) -> None:
        """Stop the events, and let the queries read the last of them."""
        self._feed.close()
        pipeline, quiet = self._launch.pipeline, 0
        deadline = self._clock.monotonic() + DRAIN_S
        while pipeline is not None and pipeline.active and not stopped() and quiet < 4:
            if not isinstance(self._feed, Replay) and self._clock.monotonic() > deadline:
                break
            quiet = quiet + 1 if pipeline.caught_up() else 0
            self._look()
            self.scene.stage = "reading the last events"
            screen.show(self.scene)
            self._store.runtime.tasks.sleep(FRAME_S)

    def _end(self, screen: Screen) -> None:
        self._feed.close()
        self._launch.close()
        self._look()
        self.scene.stage = ""
        screen.show(self.scene)
        screen.close()
        for tail in self._tails.values():
            tail.close()

    def _tell(self, console: Console) -> int:
        console.print()
        if isinstance(self._launch.error, AnabranchError):
            raise self._launch.error
        if self._launch.error is not None:
            console.print(f"[bold red]Spark could not start:[/] {self._launch.error}", soft_wrap=True)
            return 1
        report.summary(
            console,
            source=self._source,
            written=self._feed.events,
            progress=self.scene.progress,
            batch_ms=list(self._batch_ms.values())[1:],
        )
        if self._feed.error is not None:
            raise self._feed.error
        holds = report.tell_proof(console, self._proofs())
        failed = self._failed()
        if failed is not None:
            raise failed
        results = self._targets[0] if self._store.streams.exists(self._targets[0]) else None
        report.next_steps(console, store=_short(self._store.url), source=self._source, results=results, key=self._key)
        return 0 if holds else 1

    def _failed(self) -> AnabranchError | None:
        if self._launch.pipeline is not None:
            try:
                self._launch.pipeline.await_termination()
            except AnabranchError as exc:
                return exc
        return None

    def _proofs(self) -> list[Proof]:
        pipeline = self._launch.pipeline
        if pipeline is None:
            return []
        proofs = []
        for claim in self._job.claims:
            place = checkpoint_place(pipeline.checkpoints[claim.target], self._store.runtime)
            watermark_us, cuts = committed(self._store.catalog, place)
            read_to = cuts.get(claim.source) or self._store.streams.head(claim.source)
            proofs.append(prove(self._store, claim, watermark_us=watermark_us, read_to=read_to))
        return proofs


def _short(path: str) -> str:
    """The path as a person would type it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else f"./{relative}"
