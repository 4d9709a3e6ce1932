"""kill -9 of a process that copies a stream to another store: whoever goes on makes what an undisturbed run makes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.model.ids import Micros
from anabranch.store import Store
from anabranch.streams.jobs.row import JOB, JobRow, State
from tests.process.children import Child
from tests.store.helpers import HookedBlobs
from tests.store.jobs_kit import SETTINGS, image, live


def copy(tell: Callable[..., None], source: Path, target: Path, puts: int) -> None:
    """Copy until so many blobs were put; then stand still, and say so."""
    limits.JOB_RANGE_BYTES, limits.JOB_BLOB_BYTES = 2 * limits.KIB, limits.KIB  # type: ignore[misc]
    with ab.connect(source, settings=SETTINGS) as one, ab.connect(target, settings=SETTINGS) as other:
        blobs = HookedBlobs(other.blobs)

        def before_put() -> None:
            if blobs.puts >= puts:
                tell("there")
                time.sleep(600)

        blobs.before_put = before_put
        other.blobs = blobs
        other.jobs._site = other.site
        tell(other.jobs.copy(one, "s/a", "t/b", window=2).id)
        time.sleep(600)


@pytest.mark.process
@pytest.mark.parametrize("puts", [1, 5])
def test_a_killed_copy_is_gone_on_with_and_ends_as_if_nothing_had_happened(puts: int, tmp_path: Path) -> None:
    with ab.connect(tmp_path / "a", settings=SETTINGS) as source:
        live(source)
        with ab.connect(tmp_path / "b", settings=SETTINGS) as target:
            target.streams.create_scope("t")
        killed: list[Child] = []
        for _ in range(2):  # the second of them goes on with the job of the first, and dies as well
            child = Child(tmp_path, f"copy-{len(killed)}", copy, tmp_path / "a", tmp_path / "b", puts)
            child.wait_for("there")
            child.kill()
            killed.append(child)
            with ab.connect(tmp_path / "b", settings=SETTINGS) as target:
                (row,) = target.jobs.list()
                assert row.state is State.RUNNING  # nobody has told it otherwise
                silent(target)
        with ab.connect(tmp_path / "b", settings=SETTINGS) as target:
            assert not target.streams.exists("t/b")
            for _ in range(2):
                target.collect(horizon_us=0)
            target.jobs.resume(row.id).wait()
            assert image(target, "t/b") == image(source, "s/a")
            assert [str(info.name) for info in target.streams.list(internal=True)] == ["t/b"]
            assert list(target.check()) == []


def silent(target: Store) -> None:
    """Let the job look as it does half a minute later."""
    with target.catalog.writing() as txn:
        (piece,) = txn.pieces(JOB)
        row = JobRow.from_piece(piece)
        txn.put_piece(replace(row, seen_at=Micros(row.seen_at - limits.JOB_SILENT_US)).to_piece())
