"""Decides an append that a producer has numbered, under the lock of the producer's row. Adapters that decide in the
database are tested against these functions."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch import limits
from anabranch.model.append import Appended, Part, Refusal, Refused
from anabranch.model.ids import Micros
from anabranch.model.producer import PlacedEvents, ProducerAnswer, ProducerSequence, ProducerState


def decide_sequence(carried: ProducerSequence, producer: ProducerState | None) -> Refused | None:
    """Refuse a unit for its numbers, before its parts are decided; None if it is the producer's next one. Comes first, so
    that a repeated append finds its first answer even if its segments were sealed or removed since."""
    if producer is None or carried.epoch > producer.epoch:
        return Refused(Refusal.UNKNOWN_WRITER, 0 if producer is None else producer.last + 1)
    if carried.epoch < producer.epoch:
        if producer.answers.find(carried.epoch, carried.first, carried.last) is not None:
            return Refused(Refusal.REPEATED, carried.last)
        return Refused(Refusal.FENCED, producer.epoch)
    if carried.last <= producer.last:
        return Refused(Refusal.REPEATED, producer.last)
    if carried.first != producer.last + 1:
        return Refused(Refusal.GAP, producer.last + 1)
    return None


def advance_producer(
    producer: ProducerState,
    carried: ProducerSequence,
    parts: Sequence[Part],
    appended: Sequence[Appended],
    *,
    now: Micros,
) -> ProducerState:
    """The producer's state after an accepted unit."""
    events = tuple(
        PlacedEvents(place.segment.packed, each.start + place.shift, part.count, each.appended_at)
        for place, part, each in zip(carried.places, parts, appended, strict=True)
    )
    answer = ProducerAnswer(carried.epoch, carried.first, carried.last, events)
    answers = producer.answers.followed_by(answer, kept=limits.PRODUCER_ANSWERS_KEPT)
    return ProducerState(producer.epoch, carried.last, answers, now)
