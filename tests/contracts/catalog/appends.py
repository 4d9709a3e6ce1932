"""The contract of `Catalog.commit` and `Writing.append`: the commit function."""

from __future__ import annotations

import random
from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Catalog, StreamTail
from anabranch.core.decide import advance_log, advance_progress, decide
from anabranch.model.append import (
    Appended,
    BlobEntry,
    BlobLocation,
    Commit,
    LogState,
    Part,
    Progress,
    Refusal,
    Refused,
    TimeBounds,
    Unit,
)
from anabranch.model.ids import BlobId, LogId, Micros, WriterId
from tests.contracts.catalog.samples import NOW, STREAM, append, lengths, new_stream, part
from tests.contracts.catalog.suite import CatalogSuite


class AppendContract(CatalogSuite):
    def setup_method(self) -> None:
        """Open a catalog with one stream."""
        super().setup_method()
        self.log = new_stream(self.catalog)

    def change(self, **fields: object) -> None:
        """Change the log's state."""
        with self.catalog.writing() as writing:
            writing.update_log(replace(writing.logs([self.log])[self.log], **fields))  # type: ignore[arg-type]

    def test_offsets_are_assigned_in_order(self) -> None:
        verdicts = append(self.catalog, part(self.log, 3), part(self.log, 2))
        assert verdicts == (Appended(0, NOW), Appended(3, NOW))
        assert append(self.catalog, part(self.log)) == (Appended(5, NOW),)
        with self.catalog.reading() as reading:
            state = reading.logs([self.log])[self.log]
        assert (state.length, state.size, state.appended_at) == (6, 60, NOW)

    def test_an_inline_part_keeps_its_bytes_in_the_extent(self) -> None:
        append(self.catalog, part(self.log, 2, data=b"\x00message", times=(5, 9)))
        with self.catalog.reading() as reading:
            (extent,) = reading.extents(self.log, 0, 100, 10)
        assert (extent.start, extent.stop, extent.blob, extent.key, extent.data) == (0, 2, None, None, b"\x00message")
        assert (extent.encoding, extent.location, extent.schema, extent.checksum) == (
            "arrow",
            BlobLocation(0, 8),
            1,
            -5,
        )
        assert (extent.appended, extent.events, extent.size_end) == (
            TimeBounds(NOW, NOW),
            TimeBounds(Micros(5), Micros(9)),
            20,
        )

    def test_a_blob_is_listed_once_for_all_its_parts(self) -> None:
        other = new_stream(self.catalog, 78, "iot/other")
        parts = (part(self.log, 2, blob="commits/a"), part(other, 3, blob="commits/a"))
        self.catalog.commit(Commit(tuple(Unit((each,)) for each in parts), NOW, (BlobEntry("commits/a", 512, NOW),)))
        with self.catalog.reading() as reading:
            (blob,) = reading.blobs_after(BlobId(0), 10)
            held = [reading.extents(log, 0, 10, 10)[0] for log in (self.log, other)]
            assert reading.extents_of_blob(blob.id) == held
            assert reading.blob_in_use(blob.id)
        assert (blob.key, blob.size, blob.begun_at, blob.encoding, blob.dead_at) == (
            "commits/a",
            512,
            NOW,
            "arrow",
            None,
        )
        assert {extent.key for extent in held} == {"commits/a"}

    def test_a_blob_that_several_transactions_use_is_listed_once(self) -> None:
        entry = BlobEntry("commits/a", 512, NOW)
        units = [Unit((part(self.log, 2, blob="commits/a"),)) for _ in range(3)]
        with self.catalog.writing() as writing:
            for unit in units[:2]:
                writing.append(unit, now=NOW, blobs=(entry,))
        self.catalog.commit(Commit((units[2],), NOW, (entry,)))
        with self.catalog.reading() as reading:
            (blob,) = reading.blobs_after(BlobId(0), 10)
            assert [extent.blob for extent in reading.extents(self.log, 0, 10, 10)] == [blob.id] * 3

    def test_append_times_of_a_log_never_go_back(self) -> None:
        assert append(self.catalog, part(self.log), now=NOW + 50) == (Appended(0, Micros(NOW + 50)),)
        assert append(self.catalog, part(self.log), now=NOW) == (Appended(1, Micros(NOW + 50)),)

    def test_a_retried_batch_finds_its_first_offsets(self) -> None:
        batch = part(self.log, 3, writer="w", first=0)
        assert append(self.catalog, batch) == (Appended(0, NOW),)
        append(self.catalog, part(self.log, 4, writer="w", first=3))
        assert append(self.catalog, batch, now=NOW + 9) == (Appended(0, NOW, duplicate=True),)
        assert lengths(self.catalog, [self.log]) == {self.log: 7}

    def test_a_batch_twice_in_one_commit_lands_once(self) -> None:
        batch = part(self.log, 3, writer="w", first=0)
        assert append(self.catalog, batch, batch) == (Appended(0, NOW), Appended(0, NOW, duplicate=True))
        assert lengths(self.catalog, [self.log]) == {self.log: 3}

    def test_the_batches_in_flight_are_remembered(self) -> None:
        for first in range(limits.WRITER_BATCHES_KEPT + 1):
            append(self.catalog, part(self.log, writer="w", first=first))
        assert append(self.catalog, part(self.log, writer="w", first=1)) == (Appended(1, NOW, duplicate=True),)
        (verdict,) = append(self.catalog, part(self.log, writer="w", first=0))
        assert verdict == Refused(Refusal.UNKNOWN_WRITER, limits.WRITER_BATCHES_KEPT + 1)

    def test_a_gap_and_an_unknown_writer_are_distinguished(self) -> None:
        append(self.catalog, part(self.log, 2, writer="w", first=0))
        assert append(self.catalog, part(self.log, writer="w", first=3)) == (Refused(Refusal.GAP, 2),)
        assert append(self.catalog, part(self.log, writer="stranger", first=3)) == (Refused(Refusal.UNKNOWN_WRITER, 0),)

    def test_a_condition_on_the_length_holds_or_refuses(self) -> None:
        assert append(self.catalog, part(self.log, 2, expected=0)) == (Appended(0, NOW),)
        assert append(self.catalog, part(self.log, 2, expected=0)) == (Refused(Refusal.CONDITION, 2),)
        verdicts = append(self.catalog, part(self.log, expected=2), part(self.log, expected=2))
        assert verdicts == (Appended(2, NOW), Refused(Refusal.CONDITION, 3))

    def test_fences_refuse_older_owners(self) -> None:
        self.change(fence=5)
        assert append(self.catalog, part(self.log, fence=4)) == (Refused(Refusal.FENCED, 5),)
        assert append(self.catalog, part(self.log, fence=5)) == (Appended(0, NOW),)
        with self.catalog.writing() as writing:
            writing.put_progress(self.log, WriterId("w"), Progress(next=0, fence=2), now=NOW)
        (verdict,) = append(self.catalog, part(self.log, writer="w", first=0, writer_fence=1))
        assert verdict == Refused(Refusal.FENCED, 2)
        (verdict,) = append(self.catalog, part(self.log, writer="w", first=0, writer_fence=2))
        assert verdict == Appended(1, NOW)

    def test_batches_of_two_owners_are_distinguished_however_alike_their_numbers(self) -> None:
        first, second = (part(self.log, 3, writer="w", first=0, writer_fence=fence) for fence in (1, 2))
        with self.catalog.writing() as writing:
            writing.put_progress(self.log, WriterId("w"), Progress(next=0, fence=2), now=NOW)
        assert append(self.catalog, second) == (Appended(0, NOW),)
        assert append(self.catalog, first) == (Refused(Refusal.FENCED, 2),)
        assert append(self.catalog, second) == (Appended(0, NOW, duplicate=True),)
        late = part(self.log, 3, writer="w", first=0, writer_fence=3)
        assert append(self.catalog, late) == (Refused(Refusal.UNKNOWN_WRITER, 3),)

    def test_a_log_that_is_gone_refuses(self) -> None:
        assert append(self.catalog, part(self.log + 1000)) == (Refused(Refusal.GONE),)

    def test_checks_come_in_the_order_of_the_contract(self) -> None:
        landed = part(self.log, writer="w", first=0)
        append(self.catalog, landed)
        self.change(fence=5, sealed=True)
        wrong = {"writer": "w", "first": 9, "expected": 99}
        assert append(self.catalog, landed) == (Appended(0, NOW, duplicate=True),)
        assert append(self.catalog, part(self.log, fence=1, **wrong)) == (Refused(Refusal.FENCED, 5),)  # type: ignore[arg-type]
        assert append(self.catalog, part(self.log, fence=5, **wrong)) == (Refused(Refusal.SEALED, 1),)  # type: ignore[arg-type]
        self.change(sealed=False)
        assert append(self.catalog, part(self.log, fence=5, **wrong)) == (Refused(Refusal.GAP, 1),)  # type: ignore[arg-type]

    def test_a_refused_part_leaves_the_others_of_a_commit_alone(self) -> None:
        verdicts = append(self.catalog, part(self.log), part(self.log, expected=99), part(self.log))
        assert verdicts == (Appended(0, NOW), Refused(Refusal.CONDITION, 1), Appended(1, NOW))

    def test_a_unit_stands_or_falls_whole(self) -> None:
        other = new_stream(self.catalog, 78, "iot/other")
        unit = Unit((part(self.log, 2, writer="w", first=0), part(other, expected=99)))
        after = Unit((part(self.log, writer="w", first=0),))
        (fallen, stood) = self.catalog.commit(Commit((unit, after), NOW))
        assert fallen == (Refused(Refusal.UNIT), Refused(Refusal.CONDITION, 0))
        assert stood == (Appended(0, NOW),)
        assert lengths(self.catalog, [self.log, other]) == {self.log: 1, other: 0}

    def test_the_parts_of_a_unit_follow_each_other(self) -> None:
        unit = Unit((part(self.log, 2, writer="w", first=0), part(self.log, 3, writer="w", first=2, expected=2)))
        assert self.catalog.commit(Commit((unit,), NOW)) == ((Appended(0, NOW), Appended(2, NOW)),)

    def test_a_unit_with_a_request_happens_once(self) -> None:
        unit = Unit((part(self.log, 2), part(self.log, 1)), request="r1")
        assert self.catalog.commit(Commit((unit,), NOW)) == ((Appended(0, NOW), Appended(2, NOW)),)
        again = self.catalog.commit(Commit((unit,), Micros(NOW + 5)))
        assert again == ((Appended(0, NOW, duplicate=True), Appended(2, NOW, duplicate=True)),)
        assert lengths(self.catalog, [self.log]) == {self.log: 3}

    def test_a_blob_behind_the_horizon_is_refused_but_its_retry_is_answered(self) -> None:
        early = BlobEntry("commits/a", 512, Micros(NOW - 10))
        landed = part(self.log, writer="w", first=0, blob="commits/a")
        self.catalog.commit(Commit((Unit((landed,)),), NOW, (early,)))
        with self.catalog.writing() as writing:
            writing.set_horizon(Micros(NOW - 9))
        late = part(self.log, writer="w", first=1, blob="commits/b")
        entry = BlobEntry("commits/b", 512, Micros(NOW - 10))
        verdicts = self.catalog.commit(Commit((Unit((landed,)), Unit((late,))), NOW, (early, entry)))
        assert verdicts == ((Appended(0, NOW, duplicate=True),), (Refused(Refusal.EXPIRED, NOW - 9),))
        exact = BlobEntry("commits/c", 512, Micros(NOW - 9))
        fresh = part(self.log, writer="w", first=1, blob="commits/c")
        assert self.catalog.commit(Commit((Unit((fresh,)),), NOW, (exact,))) == ((Appended(1, NOW),),)

    def test_an_append_in_a_transaction_is_undone_with_it(self) -> None:
        class Undo(Exception):
            pass

        unit = Unit((part(self.log, 2, writer="w", first=0),))
        try:
            with self.catalog.writing() as writing:
                assert writing.append(unit, now=NOW) == (Appended(0, NOW),)
                assert writing.append(unit, now=NOW) == (Appended(0, NOW, duplicate=True),)
                raise Undo
        except Undo:
            pass
        with self.catalog.reading() as reading:
            assert reading.logs([self.log])[self.log].length == 0
            assert reading.progress(self.log, WriterId("w")) is None
            assert reading.extents(self.log, 0, 10, 10) == []

    def test_what_is_appended_at_the_end_of_a_log_is_what_a_commit_appends(self) -> None:
        other, writer = new_stream(self.catalog, 78, "iot/other"), WriterId("w")
        times = [(5, 9), None, (3, 4)]
        for first, each in enumerate(times):
            append(self.catalog, part(other, writer="w", first=first, times=each))
        end = StreamTail(STREAM, self.log, writer)
        with self.catalog.writing(end) as writing:
            assert writing.extent_before(self.log, 1) is None
            for first, each in enumerate(times[:2]):
                unit = Unit((part(self.log, writer="w", first=first, times=each),))
                assert writing.append(unit, now=NOW) == (Appended(first, NOW),)
                last = writing.extent_before(self.log, 100)
                assert last is not None and (last.start, last.stop) == (first, first + 1)
        with self.catalog.writing(end) as writing:
            last = writing.extent_before(self.log, 100)
            assert last is not None and last.data == b"events" and last.stop == 2
            unit = Unit((part(self.log, writer="w", first=2, times=times[2]),))
            assert writing.append(unit, now=NOW) == (Appended(2, NOW),)
        with self.catalog.reading() as reading:
            found = [replace(extent, log=other) for extent in reading.extents(self.log, 0, 10, 10)]
            assert found == reading.extents(other, 0, 10, 10)
            states = reading.logs([self.log, other])
            assert replace(states[self.log], id=other, stream=states[other].stream) == states[other]
            assert reading.progress(self.log, writer) == reading.progress(other, writer)

    def test_the_end_of_a_log_that_is_gone_refuses(self) -> None:
        gone = LogId(self.log + 1000)
        with self.catalog.writing(StreamTail(STREAM, gone, WriterId("w"))) as writing:
            assert writing.extent_before(gone, 100) is None
            unit = Unit((part(gone, writer="w", first=0),))
            assert writing.append(unit, now=NOW) == (Refused(Refusal.GONE),)

    def test_the_commit_agrees_with_its_oracle(self) -> None:
        """Random commits agree with `core.decide`. If the database decides, this holds it to the pure function."""
        for seed in range(20):
            try:
                _Oracle(self.catalog, [self.log, new_stream(self.catalog, 1000 + seed, f"iot/s{seed}")], seed).play()
            except AssertionError as exc:
                exc.add_note(f"seed {seed}")
                raise

    def test_commits_of_two_processes_agree_with_the_oracle(self) -> None:
        """Each decides with the other's commits in view, however little it reads again."""
        other = self.again()
        if other is None:
            return
        try:
            for seed in range(20):
                logs = [self.log, new_stream(self.catalog, 1000 + seed, f"iot/s{seed}")]
                try:
                    _Oracle(self.catalog, logs, seed, other=other).play()
                except AssertionError as exc:
                    exc.add_note(f"seed {seed}")
                    raise
        finally:
            other.close()


class _Oracle:
    """The commit function in memory, and random commits to compare it with. With `other`, the same catalog opened again,
    each commit and each transaction goes through either of the two."""

    def __init__(self, catalog: Catalog, logs: list[LogId], seed: int, *, other: Catalog | None = None) -> None:
        self.catalog = catalog
        self.catalogs = [catalog] if other is None else [catalog, other]
        self.rng = random.Random(seed)
        self.now = NOW
        self.writers = [f"{seed}/{name}" for name in "abc"]
        self.progress: dict[tuple[LogId, str], Progress | None] = {}
        with catalog.reading() as reading:
            self.logs: dict[LogId, LogState] = reading.logs(logs)

    def play(self) -> None:
        """Make twenty commits, then compare the states."""
        for _ in range(20):
            self.now = Micros(self.now + self.rng.randrange(-5, 20))
            units = tuple(Unit(tuple(self.part() for _ in range(self.rng.choice((1, 1, 2, 3))))) for _ in range(4))
            assert self.rng.choice(self.catalogs).commit(Commit(units, self.now)) == tuple(
                self.decide(unit) for unit in units
            )
            self.append_at_an_end()
        with self.catalog.reading() as reading:
            assert reading.logs(sorted(self.logs)) == self.logs
            for (log, writer), progress in self.progress.items():
                assert reading.progress(log, WriterId(writer)) == progress

    def append_at_an_end(self) -> None:
        """Two parts, appended in a transaction on the end of a log."""
        log, writer = self.rng.choice(sorted(self.logs)), self.rng.choice(self.writers)
        with self.rng.choice(self.catalogs).writing(
            StreamTail(self.logs[log].stream, log, WriterId(writer))
        ) as writing:
            for _ in range(2):
                unit = Unit((self.part(),))
                assert writing.append(unit, now=self.now) == self.decide(unit)

    def part(self) -> Part:
        """A part that is usually valid."""
        rng = self.rng
        log = rng.choice(sorted(self.logs))
        state = self.logs[log]
        writer = rng.choice([None, *self.writers])
        known = self.progress.get((log, writer or "")) or Progress()
        first = max(0, known.next + rng.choice((0, 0, 0, 0, -1, -2, 1)))
        expected = rng.choice((None, None, None, state.length, state.length + 1))
        time = rng.randrange(1000)
        times = rng.choice((None, (time, time + rng.randrange(9))))
        return part(log, rng.randrange(1, 4), writer=writer, first=first, expected=expected, times=times)

    def decide(self, unit: Unit) -> tuple[Appended | Refused, ...]:
        """The verdicts that the contract prescribes for a unit, and their effect on this memory."""
        logs, progress = dict(self.logs), dict(self.progress)
        verdicts: list[Appended | Refused] = []
        for each in unit.parts:
            writer = (each.log, each.sequence.writer if each.sequence else "")
            before = progress.get(writer)
            verdict = decide(each, logs[each.log], before, now=self.now)
            verdicts.append(verdict)
            if isinstance(verdict, Appended) and not verdict.duplicate:
                logs[each.log] = advance_log(logs[each.log], each, verdict)
                if each.sequence:
                    progress[writer] = advance_progress(before, each, verdict)
        if any(isinstance(verdict, Refused) for verdict in verdicts):
            fallen = Refused(Refusal.UNIT)
            return tuple(fallen if isinstance(v, Appended) and not v.duplicate else v for v in verdicts)
        self.logs, self.progress = logs, progress
        return tuple(verdicts)
