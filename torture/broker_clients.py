"""What clients of brokers do under torture: append by Flight and by HTTP. Each logs what it tries and each answer."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import httpx

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from torture.child import Log
from torture.location import StoreLocation

_KEYS: Final = 3
_AGAIN_S: Final = 0.05
_ANSWER_S: Final = 2.0
_PENDING_MAX: Final = 30


@dataclass(frozen=True)
class BrokerLocation(StoreLocation):
    """A store as its brokers serve it; `url` names them."""

    def open(self, seed: int) -> ab.Store:
        """Opens it remotely."""
        return ab.connect(self.url)


def write(log: Log, place: BrokerLocation, stop: Path, stream: str, name: str, seed: int) -> None:
    """Writes through one writer after another, each with a producer of its own name, until the file `stop` exists."""
    rng = random.Random(seed)
    for session in count():
        if stop.exists():
            return
        numbers = [0] * _KEYS
        producer = f"{name}.{session}"
        waiting: deque[tuple[str, ab.Ack]] = deque()
        try:
            with place.open(seed) as store, store.writer(stream, producer=producer) as writer:
                for _ in range(rng.randrange(20, 400)):
                    key = rng.randrange(_KEYS)
                    event = f"{producer}|k{key}|{numbers[key]}"
                    numbers[key] += 1
                    log("try", event)
                    try:
                        waiting.append((event, writer.write(f"{event}|".encode(), key=f"k{key}")))
                    except AnabranchError:
                        log("unknown", event)
                        raise
                    while len(waiting) > rng.choice((0, _PENDING_MAX)):
                        _settle(log, waiting)
                    if stop.exists():
                        break
                    time.sleep(rng.random() * 0.01)
        except AnabranchError as exc:
            log("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)
        while waiting:
            _settle(log, waiting)


def _settle(log: Log, waiting: deque[tuple[str, ab.Ack]]) -> None:
    event, ack = waiting.popleft()
    try:
        log("acked", event, ack.result())
    except AnabranchError as exc:
        log("met", type(exc).__name__, exc)
        log("unknown", event)


def post(log: Log, urls: Sequence[str], stop: Path, stream: str, ident: int, name: str, seed: int) -> None:
    """Posts numbered requests by HTTP, each to one broker after another until it is answered. Two answers of one
    request never differ in what they say of its events."""
    rng = random.Random(seed)
    number = 0
    while not stop.exists():
        event = f"{name}|k0|{number}"
        log("try", event)
        while (answer := _post_once(log, rng.choice(urls), stream, name, number, event)) is None:
            time.sleep(_AGAIN_S)
        log("acked", event, EventPointer(StreamId(ident), _segment(answer[0]), answer[1]))
        if rng.random() < 0.1 and (again := _post_once(log, rng.choice(urls), stream, name, number, event)):
            assert again == answer, f"the repeat of {event} was answered {again}, not {answer}"
        number += 1
        time.sleep(rng.random() * 0.02)


def _post_once(log: Log, url: str, stream: str, name: str, number: int, event: str) -> tuple[str, int] | None:
    """Returns the event's pointer; None if there is no answer, or that it has to be sent again."""
    headers = {"Producer-Id": name, "Producer-Epoch": "0", "Producer-Seq": str(number), "Anabranch-Key": "k0"}
    headers["Content-Type"] = "application/octet-stream"
    address = f"{url}/v1/streams/{stream}/events"
    try:
        found = httpx.post(address, content=f"{event}|".encode(), headers=headers, timeout=_ANSWER_S)
    except httpx.HTTPError as exc:
        log("met", type(exc).__name__)
        return None
    if found.status_code >= 500 or found.status_code == 429:
        log("met", f"HTTP-{found.status_code}")
        return None
    assert found.status_code == 200, f"{event}: {found.status_code} {found.text}"
    log("did", "post", "again" if found.json()["duplicate"] else "")
    (span,) = found.json()["ranges"]
    return str(span["segment"]), int(span["start"])


def _segment(text: str) -> SegmentId:
    epoch, _, number = text.partition(".")
    return SegmentId(int(epoch), int(number))
