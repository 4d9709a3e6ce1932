"""The contract of units with a producer: `Catalog.commit` and `Writing.append` as `core.producer` decides, and the rows of
producers."""

from __future__ import annotations

import random
from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.decide import advance_log, decide
from anabranch.core.producer import advance_producer, decide_sequence
from anabranch.model.append import Appended, Commit, LogState, Part, Refusal, Refused, Unit, Verdict
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.producer import (
    Place,
    PlacedEvents,
    ProducerAnswer,
    ProducerAnswers,
    ProducerSequence,
    ProducerState,
)
from tests.contracts.catalog.samples import NOW, SEGMENT, STREAM, lengths, new_stream, part
from tests.contracts.catalog.suite import CatalogSuite

_PLACE = Place(SEGMENT, 100)


def numbered(
    *parts: Part, number: int, last: int | None = None, epoch: int = 0, producer: str = "p", stream: StreamId = STREAM
) -> Unit:
    """A unit that holds the append `number` of a producer, or those up to `last`; its events have offsets in the stream
    that are 100 greater than in the log."""
    final = number if last is None else last
    return Unit(parts, producer=ProducerSequence(stream, producer, epoch, number, final, (_PLACE,) * len(parts)))


class ProducerContract(CatalogSuite):
    def setup_method(self) -> None:
        """Open a catalog with one stream, which has a producer."""
        super().setup_method()
        self.log = new_stream(self.catalog)
        self.put(ProducerState(seen_at=NOW))

    def put(self, state: ProducerState, name: str = "p", stream: StreamId = STREAM) -> None:
        """Store a producer."""
        with self.catalog.writing(stream) as writing:
            writing.put_producer(stream, name, state)

    def row(self, name: str = "p", stream: StreamId = STREAM) -> ProducerState | None:
        """What is stored about a producer."""
        with self.catalog.reading() as reading:
            return reading.producer(stream, name)

    def commit(self, *units: Unit, now: int = NOW) -> tuple[tuple[Verdict, ...], ...]:
        """Commit units."""
        return self.catalog.commit(Commit(units, Micros(now)))

    def test_a_numbered_append_advances_its_producer_in_the_same_commit(self) -> None:
        assert self.commit(numbered(part(self.log, 3), number=0)) == ((Appended(0, NOW),),)
        assert self.commit(numbered(part(self.log, 2), number=1), now=NOW + 5) == ((Appended(3, Micros(NOW + 5)),),)
        answers = (
            ProducerAnswer(0, 0, 0, (PlacedEvents(SEGMENT.packed, 100, 3, NOW),)),
            ProducerAnswer(0, 1, 1, (PlacedEvents(SEGMENT.packed, 103, 2, NOW + 5),)),
        )
        assert self.row() == ProducerState(0, 1, ProducerAnswers.of(answers), Micros(NOW + 5))

    def test_a_repeated_number_appends_nothing_and_finds_its_answer(self) -> None:
        self.commit(numbered(part(self.log, 3), number=0))
        assert self.commit(numbered(part(self.log, 7), number=0), now=NOW + 9) == ((Refused(Refusal.REPEATED, 0),),)
        row = self.row()
        assert row is not None and row.seen_at == NOW
        answer = row.answers.find(0, 0, 0)
        assert answer is not None and answer.events == (PlacedEvents(SEGMENT.packed, 100, 3, NOW),)
        assert lengths(self.catalog, [self.log]) == {self.log: 3}

    def test_a_gap_an_old_epoch_and_an_unknown_producer_are_refused(self) -> None:
        self.put(ProducerState(5, 2))
        assert self.commit(numbered(part(self.log), number=4, epoch=5)) == ((Refused(Refusal.GAP, 3),),)
        assert self.commit(numbered(part(self.log), number=3, epoch=4)) == ((Refused(Refusal.FENCED, 5),),)
        assert self.commit(numbered(part(self.log), number=0, epoch=6)) == ((Refused(Refusal.UNKNOWN_WRITER, 3),),)
        stranger = numbered(part(self.log), number=0, producer="q")
        assert self.commit(stranger) == ((Refused(Refusal.UNKNOWN_WRITER, 0),),)
        assert lengths(self.catalog, [self.log]) == {self.log: 0}
        assert self.row() == ProducerState(5, 2) and self.row("q") is None

    def test_an_old_epoch_still_finds_what_it_has_appended(self) -> None:
        self.commit(numbered(part(self.log), number=0))
        row = self.row()
        assert row is not None
        self.put(replace(row, epoch=1))
        assert self.commit(numbered(part(self.log), number=0)) == ((Refused(Refusal.REPEATED, 0),),)
        assert self.commit(numbered(part(self.log), number=1)) == ((Refused(Refusal.FENCED, 1),),)
        assert self.commit(numbered(part(self.log), number=1, epoch=1)) == ((Appended(1, NOW),),)

    def test_the_numbers_come_before_the_state_of_the_logs(self) -> None:
        self.commit(numbered(part(self.log), number=0))
        with self.catalog.writing() as writing:
            writing.update_log(replace(writing.logs([self.log])[self.log], sealed=True))
        assert self.commit(numbered(part(self.log), number=0)) == ((Refused(Refusal.REPEATED, 0),),)
        assert self.commit(numbered(part(self.log), number=2)) == ((Refused(Refusal.GAP, 1),),)
        assert self.commit(numbered(part(self.log), number=1)) == ((Refused(Refusal.SEALED, 1),),)
        gone = LogId(self.log + 1000)
        assert self.commit(numbered(part(gone), number=0)) == ((Refused(Refusal.REPEATED, 0),),)
        assert self.commit(numbered(part(gone), number=1)) == ((Refused(Refusal.GONE),),)
        row = self.row()
        assert row is not None and row.last == 0

    def test_a_unit_over_several_logs_stands_or_falls_with_its_number(self) -> None:
        other = new_stream(self.catalog, 78, "iot/other")
        fallen = numbered(part(self.log), part(other, expected=99), number=0)
        stood = numbered(part(self.log, 2), part(other, 3), number=0)
        after = numbered(part(other, 4), number=1)
        verdicts = self.commit(fallen, stood, after)
        assert verdicts[0] == (Refused(Refusal.UNIT), Refused(Refusal.CONDITION, 0))
        assert verdicts[1:] == ((Appended(0, NOW), Appended(0, NOW)), (Appended(3, NOW),))
        row = self.row()
        assert row is not None and row.last == 1
        answer = row.answers.find(0, 0, 0)
        assert answer is not None and [(each.start, each.length) for each in answer.events] == [(100, 2), (100, 3)]

    def test_two_appends_of_one_producer_in_one_commit_follow_each_other(self) -> None:
        units = [numbered(part(self.log), number=number) for number in (0, 1, 1, 3, 2)]
        assert self.commit(*units) == (
            (Appended(0, NOW),),
            (Appended(1, NOW),),
            (Refused(Refusal.REPEATED, 1),),
            (Refused(Refusal.GAP, 2),),
            (Appended(2, NOW),),
        )

    def test_a_unit_may_hold_several_appends(self) -> None:
        assert self.commit(numbered(part(self.log, 3), number=0, last=2)) == ((Appended(0, NOW),),)
        assert self.commit(numbered(part(self.log), number=2, last=3)) == ((Refused(Refusal.GAP, 3),),)
        assert self.commit(numbered(part(self.log), number=1)) == ((Refused(Refusal.REPEATED, 2),),)
        assert self.commit(numbered(part(self.log), number=3)) == ((Appended(3, NOW),),)

    def test_the_last_answers_are_kept(self) -> None:
        count = limits.PRODUCER_ANSWERS_KEPT + 3
        for number in range(count):
            self.commit(numbered(part(self.log), part(self.log), number=number))
        row = self.row()
        assert row is not None
        assert [each.first for each in row.answers] == list(range(3, count))
        assert self.commit(numbered(part(self.log), number=0)) == ((Refused(Refusal.REPEATED, count - 1),),)

    def test_plain_appends_and_numbered_ones_share_a_commit(self) -> None:
        plain = Unit((part(self.log, 2, writer="w", first=0),))
        assert self.commit(plain, numbered(part(self.log), number=0), plain) == (
            (Appended(0, NOW),),
            (Appended(2, NOW),),
            (Appended(0, NOW, duplicate=True),),
        )

    def test_an_append_in_a_transaction_sees_the_one_before_it(self) -> None:
        with self.catalog.writing() as writing:
            assert writing.append(numbered(part(self.log), number=0), now=NOW) == (Appended(0, NOW),)
            assert writing.append(numbered(part(self.log), number=0), now=NOW) == (Refused(Refusal.REPEATED, 0),)
            assert writing.append(numbered(part(self.log), number=1), now=NOW) == (Appended(1, NOW),)

    def test_a_producer_is_of_one_stream_and_goes_with_it(self) -> None:
        other, log = StreamId(78), new_stream(self.catalog, 78, "iot/other")
        self.put(ProducerState(), stream=other)
        self.commit(numbered(part(self.log), number=0))
        assert self.commit(numbered(part(log), number=0, stream=other)) == ((Appended(0, NOW),),)
        with self.catalog.writing() as writing:
            writing.drop_stream(STREAM)
        assert self.row() is None and self.row(stream=other) is not None
        assert self.commit(numbered(part(self.log), number=1)) == ((Refused(Refusal.UNKNOWN_WRITER, 0),),)

    def test_producers_are_listed_counted_and_removed(self) -> None:
        for name in ("b", "ä", "a"):
            self.put(ProducerState(1, 3, seen_at=NOW), name)
        with self.catalog.reading() as reading:
            assert [name for name, _ in reading.producers(STREAM, "", 10)] == ["a", "b", "p", "ä"]
            assert reading.producers(STREAM, "a", 1) == [("b", ProducerState(1, 3, seen_at=NOW))]
            assert reading.count_producers(STREAM) == 4
        with self.catalog.writing(STREAM) as writing:
            assert writing.drop_producer(STREAM, "b") and not writing.drop_producer(STREAM, "b")
        assert self.row("b") is None

    def test_a_commit_sees_what_another_process_did_with_the_producer(self) -> None:
        other = self.again()
        if other is None:
            return
        try:
            self.commit(numbered(part(self.log), number=0))
            assert other.commit(Commit((numbered(part(self.log), number=1),), NOW)) == ((Appended(1, NOW),),)
            assert self.commit(numbered(part(self.log), number=1)) == ((Refused(Refusal.REPEATED, 1),),)
            with other.writing(STREAM) as writing:
                row = writing.producer(STREAM, "p")
                assert row is not None
                writing.put_producer(STREAM, "p", replace(row, epoch=9))
            assert self.commit(numbered(part(self.log), number=2)) == ((Refused(Refusal.FENCED, 9),),)
        finally:
            other.close()

    def test_the_commit_of_numbered_units_agrees_with_its_oracle(self) -> None:
        """Random commits agree with `core.producer` and `core.decide`."""
        other = self.again()
        try:
            for seed in range(12):
                log = new_stream(self.catalog, 1000 + seed, f"iot/s{seed}")
                try:
                    _ProducerOracle(self.catalog, other or self.catalog, [self.log, log], seed).play()
                except AssertionError as exc:
                    exc.add_note(f"seed {seed}")
                    raise
        finally:
            if other is not None:
                other.close()


class _ProducerOracle:
    """The commit of numbered and plain units in memory, and random ones to compare it with."""

    def __init__(self, catalog: Catalog, other: Catalog, logs: list[LogId], seed: int) -> None:
        self.catalogs = [catalog, other]
        self.rng = random.Random(seed)
        self.now = NOW
        self.producers: dict[str, ProducerState | None] = {f"{seed}/{name}": None for name in "ab"}
        with catalog.reading() as reading:
            self.logs: dict[LogId, LogState] = reading.logs(logs)

    def play(self) -> None:
        """Make commits and take-overs, then compare the states."""
        for _ in range(25):
            self.now = Micros(self.now + self.rng.randrange(-5, 20))
            self.take_over()
            catalog = self.rng.choice(self.catalogs)
            units = tuple(self.unit() for _ in range(self.rng.choice((1, 1, 4))))
            decided = tuple(self.decide(unit) for unit in units)
            assert catalog.commit(Commit(units, self.now)) == decided
        with self.catalogs[0].reading() as reading:
            assert reading.logs(sorted(self.logs)) == self.logs
            for name, producer in self.producers.items():
                assert reading.producer(STREAM, name) == producer

    def take_over(self) -> None:
        """Now and then a producer is opened: by its next owner, or with a new epoch that counts from 0."""
        name = self.rng.choice(sorted(self.producers))
        if self.rng.random() < 0.7:
            return
        found = self.producers[name]
        state = ProducerState(seen_at=self.now)
        if found is not None:
            last = self.rng.choice((found.last, found.last, -1))
            state = replace(found, epoch=found.epoch + self.rng.choice((1, 5)), last=last, seen_at=self.now)
        with self.rng.choice(self.catalogs).writing(STREAM) as writing:
            assert writing.producer(STREAM, name) == found
            writing.put_producer(STREAM, name, state)
        self.producers[name] = state

    def unit(self) -> Unit:
        """A unit that is usually valid."""
        rng = self.rng
        parts = tuple(self.part() for _ in range(rng.choice((1, 1, 2, 3))))
        if rng.random() < 0.2:
            return Unit(parts)
        name = rng.choice(sorted(self.producers))
        state = self.producers[name] or ProducerState()
        first = max(0, state.last + 1 + rng.choice((0, 0, 0, 0, 0, 0, -1, -2, 1)))
        last = first + rng.choice((0, 0, 0, 1))
        epoch = max(0, state.epoch + rng.choice((0, 0, 0, 0, 0, 0, -1, 1)))
        places = tuple(Place(SegmentId(rng.randrange(3), rng.randrange(3)), rng.randrange(9)) for _ in parts)
        return Unit(parts, producer=ProducerSequence(STREAM, name, epoch, first, last, places))

    def part(self) -> Part:
        """A part that is usually valid."""
        log = self.rng.choice(sorted(self.logs))
        length = self.logs[log].length
        return part(log, self.rng.randrange(1, 4), expected=self.rng.choice((None,) * 8 + (length, length + 1)))

    def decide(self, unit: Unit) -> tuple[Verdict, ...]:
        """The verdicts that the contract prescribes for a unit, and their effect on this memory."""
        carried = unit.producer
        before = None if carried is None else self.producers[carried.producer]
        if carried is not None and (refused := decide_sequence(carried, before)) is not None:
            return (refused,) * len(unit.parts)
        logs = dict(self.logs)
        verdicts: list[Verdict] = []
        for each in unit.parts:
            verdict = decide(each, logs[each.log], None, now=self.now)
            verdicts.append(verdict)
            if isinstance(verdict, Appended):
                logs[each.log] = advance_log(logs[each.log], each, verdict)
        appended = [verdict for verdict in verdicts if isinstance(verdict, Appended)]
        if len(appended) < len(verdicts):
            return tuple(Refused(Refusal.UNIT) if isinstance(each, Appended) else each for each in verdicts)
        self.logs = logs
        if carried is not None:
            assert before is not None
            self.producers[carried.producer] = advance_producer(before, carried, unit.parts, appended, now=self.now)
        return tuple(verdicts)
