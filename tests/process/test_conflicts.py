"""Several processes that copy, append, stitch, rename, delete, truncate, scale and write the same few streams at once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.streams.manager import Streams
from tests.process.children import Child, Tell
from tests.process.conflicts import Call, judge

pytestmark = pytest.mark.process

NAMES = tuple(f"s/{letter}" for letter in "abcd")
PROCESSES = 3
CALLS = 50
VERBS = (
    *("create", "create", "create", "write", "write", "write", "write", "write", "write", "copy", "copy", "copy"),
    *("append", "append", "stitch", "replace", "rename", "rename", "delete", "delete", "truncate", "scale", "scale"),
)
MAKERS = ("create", "copy", "append", "stitch", "replace", "scale")  # of segments


def contend(tell: Tell, place: str, blobs: Path, who: str, seed: int, go: Path) -> None:
    """Do one thing after another, and tell each as a `Call`."""
    rng = random.Random(seed)
    with ab.connect(place, blobs=blobs, create=True) as store:
        tell("ready")
        while not go.exists():
            store.runtime.tasks.sleep(0.001)
        known = 0
        for number in range(CALLS):
            verb, names = rng.choice(VERBS), tuple(rng.choices(NAMES, k=3))
            if verb == "rename" and names[0] == names[1]:
                continue
            seen = known = last_change(store, known)
            answer, error = None, None
            told = names[: {"copy": 2, "append": 2, "rename": 2, "stitch": 3, "replace": 3}.get(verb, 1)]
            if verb == "write":
                told = (names[0], f"{who}.{number}")
            try:
                answer = act(store, verb, told, rng)
            except AnabranchError as exc:
                error = type(exc).__name__
            known = last_change(store, known)
            tell("call", json.dumps([who, verb, told, seen, known, answer, error], separators=(",", ":")))
            if error is None and verb in MAKERS:
                tell("seen", json.dumps(looked(store, told), separators=(",", ":")))


def last_change(store: ab.Store, after: int) -> int:
    """The newest change that is there."""
    with store.catalog.reading() as reading:
        return max([after, *(change.sequence for change in reading.changes(after, 10_000))])


def looked(store: ab.Store, names: Sequence[str]) -> list[list[int]]:
    """The segments that these streams have, as far as they are there, with their key ranges."""
    with store.catalog.reading() as reading:
        found = [reading.stream(ab.StreamName.parse(name)) for name in names]
        views = reading.views([info.id for info in found if info is not None])
    return [
        [stream, segment.id.packed, segment.range.low, segment.range.high]
        for stream, view in views.items()
        for segment in view.ordered
    ]


def act(store: ab.Store, verb: str, names: tuple[str, ...], rng: random.Random) -> Any:
    """One call; its answer as JSON."""
    streams: Streams = store.streams
    match verb:
        case "create":
            streams.create(names[0], scaling=rng.randrange(1, 4))
        case "write":
            with store.writer(names[0]) as writer:
                return str(writer.write(names[1].encode(), key=rng.choice("abcdefgh")).result())
        case "copy":
            return streams.copy(names[0], names[1]).to_json()
        case "append":
            return streams.append(names[0], names[1]).to_json()
        case "stitch" | "replace":
            return streams.stitch(names[1:], into=names[0], keep_sources=verb == "stitch").to_json()
        case "rename":
            streams.rename(*names)
        case "delete":
            streams.delete(names[0])
        case "truncate":
            cut = store.cuts.tail(names[0])
            streams.truncate(names[0], cut)
            return str(cut)
        case "scale":
            return max(segment.id.epoch for segment in streams.scale(names[0], rng.randrange(1, 4)))
    return None


def test_whatever_processes_do_to_the_same_streams_happened_in_one_order(place: str, tmp_path: Path, seed: int) -> None:
    folder, rng = tmp_path, random.Random(seed)
    blobs, go = folder / "blobs", folder / "go"
    with ab.connect(place, blobs=blobs, create=True) as store:
        store.scopes.create("s")
        children = [
            Child(folder, f"p{n}", contend, place, blobs, f"p{n}", rng.randrange(1 << 32), go) for n in range(PROCESSES)
        ]
        for child in children:
            child.wait_for("ready")
        go.touch()
        for child in children:
            assert child.join() == 0
        calls, ranges = told_by(children)
        wrong = judge(store, calls, ranges)
        assert not wrong, "\n".join(wrong[:20])
        assert list(store.check()) == []
        done = Counter(call.verb for call in calls if call.error is None)
        assert sum(done.values()) > 10, done
        store.compact(force=True)
        store.collect()
        assert judge(store, calls, ranges) == []


def told_by(children: Sequence[Child]) -> tuple[list[Call], dict[tuple[StreamId, SegmentId], KeyRange]]:
    """Their calls, and the key ranges of all segments that they saw."""
    calls: list[Call] = []
    ranges: dict[tuple[StreamId, SegmentId], KeyRange] = {}
    for child in children:
        for line in child.told.read_text().splitlines():
            kind, _, text = line.partition(" ")
            if kind == "call":
                who, verb, names, seen, known, answer, error = json.loads(text)
                calls.append(Call(who, verb, tuple(names), seen, known, answer, error))
            elif kind == "seen":
                ranges |= {
                    (StreamId(s), SegmentId.unpack(p)): KeyRange(low, high) for s, p, low, high in json.loads(text)
                }
    return calls, ranges
