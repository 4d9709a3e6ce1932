"""Truncation under torture: events before an acknowledged cut are gone, and events after all requested cuts are
readable."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.pointer import EventPointer
from anabranch.model.stream import StreamView
from torture.child import Child, Log
from torture.location import StoreLocation

STREAM: Final = "t/short"
_AGAIN_S: Final = 0.2


def trim(log: Log, place: StoreLocation, stop: Path, name: str, seed: int) -> None:
    """Writes numbered events, logs where each is, and truncates the stream after some of them."""
    rng = random.Random(seed)
    numbers = count()
    while not stop.exists():
        try:
            with place.open(seed) as store, store.writer(STREAM) as writer:
                while not stop.exists():
                    for _ in range(rng.randrange(1, 20)):
                        body = f"{name}|{next(numbers)}"
                        log("wrote", body, writer.write(body.encode(), key=f"k{rng.randrange(4)}").result())
                    if rng.random() < 0.5:
                        _truncate(log, rng, store)
                    if rng.random() < 0.1:
                        store.streams.scale(STREAM, rng.choice((1, 2, 3)))
                    time.sleep(rng.random() * 0.2)
        except AnabranchError as exc:
            log("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)


def _truncate(log: Log, rng: random.Random, store: ab.Store) -> None:
    with store.reader(STREAM, start=HEAD) as reader:
        for _ in zip(range(rng.randrange(1, 60)), reader, strict=False):
            pass
        cut = reader.position
    log("asked", cut)
    store.streams.truncate(STREAM, cut)
    log("cut", cut)
    log("did", "truncate")


def wrong(store: ab.Store, children: Sequence[Child], counts: Counter[str]) -> list[str]:
    """Returns events that are readable though truncated, or not readable though never truncated."""
    view = store.streams.view(STREAM)
    with store.reader(STREAM, start=HEAD) as reader:
        there = {event.pointer: event.body.decode() for event in reader}
    wrote, asked, done = {}, Counter[SegmentId](), Counter[SegmentId]()
    for child in children:
        for word, *rest in child.lines():
            if word == "wrote":
                wrote[EventPointer.parse(rest[1])] = rest[0]
            elif word in ("asked", "cut"):
                for segment, offset in StreamCut.parse(rest[0]):
                    reached = asked if word == "asked" else done
                    reached[segment] = max(reached[segment], offset)
    counts["events truncated"] = len(wrote.keys() - there.keys())
    heads = {segment.id: segment.head for segment in view.ordered}
    # A cut in a segment releases all of that segment's predecessors, which the cut does not list.
    last = {segment.id: max(asked[segment.id], _before(view, segment.id, asked)) for segment in view.ordered}
    found = [
        f"{heads[each]} is the head of segment {each}, where {last[each]} was asked for"
        for each in heads
        if heads[each] > last[each]
    ]
    found += [
        f"{heads[each]} is the head of segment {each}, though {done[each]} was answered"
        for each in done
        if heads.get(each, 0) < done[each]
    ]
    found += [
        f"{body} at {pointer} is not there" if pointer not in there else f"{there[pointer]} is at {pointer}, not {body}"
        for pointer, body in wrote.items()
        if pointer.offset >= heads.get(pointer.segment, 0) and there.get(pointer) != body
    ]
    return [f"truncation: {text}" for text in found]


def _before(view: StreamView, segment: SegmentId, asked: Counter[SegmentId]) -> int:
    """Returns the whole segment's end, if a requested cut lies in one of its successors."""
    successors = [each.id for each in view.successors(segment)]
    reached = any(each in asked or _before(view, each, asked) for each in successors)
    return view.length(segment) if reached else 0
