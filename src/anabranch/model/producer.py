"""Producers: named sequences of appends to a stream, and what a stream stores about each of them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import is_unicode

_UNNAMED: Final = re.compile(r"writer-[0-9a-f]{24}\Z")


def unnamed_producer(token: str) -> str:
    """The name of the producer of a remote writer that was given no name. Only this writer uses the producer, and
    removes it when the writer is closed. `token` is 24 hex digits."""
    return f"writer-{token}"


def is_unnamed(name: str) -> bool:
    """True for a name that `unnamed_producer` made."""
    return _UNNAMED.match(name) is not None


def check_producer_name(name: str, what: str = "a producer's name") -> str:
    """Return `name` if a stream can store it as a producer's name. Raises InvalidArgument, whose message calls the name
    `what`."""
    good = isinstance(name, str) and name and "\0" not in name and is_unicode(name)
    if not good or len(name.encode()) > limits.PRODUCER_NAME_BYTES_MAX:
        raise InvalidArgument(
            f"expected {what} as text of 1 to {limits.PRODUCER_NAME_BYTES_MAX} bytes without NUL, got {name!r:.100}"
        )
    return name


class Place(NamedTuple):
    """Where a part's events go in the stream: their segment, and what to add to a position in the part's log to get the
    offset there."""

    segment: SegmentId
    shift: int


@dataclass(frozen=True, slots=True)
class ProducerSequence:
    """What a unit carries of its producer: the numbers `first` … `last` of the appends that it holds. `places` has an
    element for each part."""

    stream: StreamId
    producer: str
    epoch: int
    first: int
    last: int
    places: tuple[Place, ...]


class PlacedEvents(NamedTuple):
    """`length` events of one append, which have offsets from `start` on in a segment (`SegmentId.packed`), and their
    append time."""

    segment: int
    start: int
    length: int
    appended_at: int


class ProducerAnswer(NamedTuple):
    """The first answer to the appends `first` … `last` of an epoch."""

    epoch: int
    first: int
    last: int
    events: tuple[PlacedEvents, ...]


_HEAD: Final = struct.Struct("<4q")  # epoch, first, last, number of runs of events
_RUN: Final = struct.Struct("<4q")
_COUNT: Final = struct.Struct("<q")


class ProducerAnswers:
    """The last answers to a producer, oldest first, packed as they are stored: int64, little-endian. First comes
    the number of answers; then, for each answer, its epoch, first and last number, its number of runs, and the four
    numbers of each run. They stay packed because every commit copies them, but only a repeated append reads them."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes = b"") -> None:
        self.packed = packed

    @classmethod
    def of(cls, answers: Sequence[ProducerAnswer]) -> ProducerAnswers:
        """The same answers, packed."""
        return cls(_COUNT.pack(len(answers)) + b"".join(map(_packed, answers)) if answers else b"")

    def followed_by(self, answer: ProducerAnswer, *, kept: int) -> ProducerAnswers:
        """These answers followed by `answer`; only the last `kept` of them."""
        count = self.count
        start = _COUNT.size
        while count >= kept:
            start += _HEAD.size + _RUN.size * _HEAD.unpack_from(self.packed, start)[3]
            count -= 1
        return ProducerAnswers(_COUNT.pack(count + 1) + self.packed[start:] + _packed(answer))

    def find(self, epoch: int, first: int, last: int) -> ProducerAnswer | None:
        """The answer to these appends, if it is kept."""
        return next((each for each in self if each[:3] == (epoch, first, last)), None)

    def __iter__(self) -> Iterator[ProducerAnswer]:
        at = _COUNT.size
        for _ in range(self.count):
            epoch, first, last, runs = _HEAD.unpack_from(self.packed, at)
            if runs < 0:
                raise ValueError("an answer has a number of runs")
            at += _HEAD.size
            stop = at + runs * _RUN.size
            events = tuple(map(PlacedEvents._make, _RUN.iter_unpack(self.packed[at:stop])))
            yield ProducerAnswer(epoch, first, last, events)
            at = stop

    @property
    def count(self) -> int:
        """How many answers there are. This is not `__len__`, because `tuple` would reserve memory for a damaged
        count."""
        return int(_COUNT.unpack_from(self.packed)[0]) if self.packed else 0

    def __eq__(self, other: object) -> bool:
        return self.packed == other.packed if isinstance(other, ProducerAnswers) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.packed)

    def __repr__(self) -> str:
        return repr(tuple(self))


def _packed(answer: ProducerAnswer) -> bytes:
    head = _HEAD.pack(answer.epoch, answer.first, answer.last, len(answer.events))
    return head + b"".join([_RUN.pack(*run) for run in answer.events])


NO_ANSWERS: Final = ProducerAnswers()


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a stream stores about a producer: its epoch, the number of its last append (-1: none yet), and the last
    answers, which may be those of earlier epochs. `seen_at` is the time of its last append, or since then, when it was
    opened."""

    epoch: int = 0
    last: int = -1
    answers: ProducerAnswers = NO_ANSWERS
    seen_at: Micros = Micros(0)
