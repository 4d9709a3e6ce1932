"""The contract of a catalog's extents: paging, times, swapping, dropping."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace

import pytest

from anabranch.catalog.port import Writing
from anabranch.core.spans import locate
from anabranch.errors import BlobExpired
from anabranch.model.append import Appended, BlobEntry, BlobLocation, Commit, TimeBounds, Unit
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId
from anabranch.model.stream import Extent, Span
from tests.contracts.catalog.samples import NOW, SEGMENT, STREAM, append, new_stream, part
from tests.contracts.catalog.suite import CatalogSuite


class ExtentContract(CatalogSuite):
    def setup_method(self) -> None:
        """Open a catalog with one stream."""
        super().setup_method()
        self.log = new_stream(self.catalog)

    def fill(self, *counts: int, times: tuple[tuple[int, int] | None, ...] = ()) -> list[Extent]:
        """Append runs, ten µs apart, and return the extents."""
        for number, count in enumerate(counts):
            bounds = times[number] if times else None
            append(self.catalog, part(self.log, count, times=bounds), now=NOW + 10 * number)
        return self.extents()

    def extents(self) -> list[Extent]:
        """All extents of the log."""
        with self.catalog.reading() as reading:
            return reading.extents(self.log, 0, 1 << 40, 10_000)

    def test_extents_that_intersect_a_range_come_in_order_and_pages(self) -> None:
        held = self.fill(3, 1, 5, 2)
        assert [(extent.start, extent.stop) for extent in held] == [(0, 3), (3, 4), (4, 9), (9, 11)]
        with self.catalog.reading() as reading:
            for start in range(12):
                for stop in range(start, 13):
                    wanted = [extent for extent in held if extent.start < stop and extent.stop > start]
                    found = reading.extents(self.log, start, stop, 10)
                    assert found == (wanted if start < stop else found)
                    assert reading.extents(self.log, start, stop, 1) == found[:1]

    def test_the_extents_of_a_segment_are_those_of_its_spans(self) -> None:
        self.fill(3, 1, 5, 2)
        with self.catalog.writing() as writing:
            other, empty, last = (writing.new_log(STREAM, appended_at=Micros(0)) for _ in range(3))
        for log, count in ((other, 4), (other, 2), (last, 1), (last, 6)):
            append(self.catalog, part(log, count))
        spans = [
            Span(SEGMENT, 5, self.log, 2, 8),
            Span(SEGMENT, 11, other, 1, 6),
            Span(SEGMENT, 16, empty, 0, 0),
            Span(SEGMENT, 16 + 1, self.log, 2, 8),  # the same positions again, after one offset that is in no span
            Span(SEGMENT, 23, last, 0, None),
        ]
        with self.catalog.writing() as writing:
            writing.drop_spans(STREAM, SEGMENT)
            for span in spans:
                writing.put_span(STREAM, span)
        with self.catalog.reading() as reading:
            for start in range(5, 31):
                for stop in range(start + 1, 32):
                    wanted = [
                        (span.offset, extent)
                        for span, low, high in locate(spans, start, stop)
                        for extent in reading.extents(span.log, low, high, 10)
                    ]
                    found = reading.extents_of_segment(STREAM, SEGMENT, start, stop, 100)
                    assert found == wanted, (start, stop)
                    assert reading.extents_of_segment(STREAM, SEGMENT, start, stop, 2) == found[:2]
            assert reading.extents_of_segment(STREAM, SegmentId(0, 1), 0, 99, 9) == []

    def test_the_last_extent_before_a_position_is_found(self) -> None:
        held = self.fill(3, 1, 5)
        with self.catalog.reading() as reading:
            for stop in range(12):
                wanted = [extent for extent in held if extent.start < stop][-1:]
                assert reading.extent_before(self.log, stop) == (wanted[0] if wanted else None)

    def test_an_extent_is_found_by_append_time(self) -> None:
        held = self.fill(3, 1, 5)
        with self.catalog.reading() as reading:
            for start, time, wanted in (
                (0, NOW - 5, 0), (0, NOW, 0), (0, NOW + 1, 1), (0, NOW + 20, 2), (3, NOW, 1), (5, NOW, 2), (0, NOW + 21, None),
            ):  # fmt: skip
                found = reading.extent_at_time(self.log, start, Micros(time), by_event_time=False)
                assert found == (None if wanted is None else held[wanted]), (start, time)

    def test_an_extent_is_found_by_event_time_however_disordered(self) -> None:
        rng = random.Random(5)
        for _ in range(5):
            times = tuple(rng.choice((None, (t := rng.randrange(100), t + rng.randrange(30)))) for _ in range(25))
            self.fill(*[rng.randrange(1, 4) for _ in times], times=times)
        held = self.extents()
        with self.catalog.reading() as reading:
            for _ in range(300):
                start, time = rng.randrange(held[-1].stop + 2), rng.randrange(140)
                late = (e for e in held if e.stop > start and e.events.high is not None and e.events.high >= time)
                found = reading.extent_at_time(self.log, start, Micros(time), by_event_time=True)
                assert found == next(late, None), (start, time)

    def test_extents_are_swapped_for_others_of_the_same_events(self) -> None:
        held = self.fill(3, 1, 5, 2, times=((5, 9), (1, 2), (30, 40), (6, 7)))
        with self.catalog.writing() as writing:
            new = self.merged(writing, held[1:3])
            assert writing.swap_extents(self.log, held[1:3], [new])
        assert self.extents() == [held[0], new, held[3]]
        with self.catalog.reading() as reading:
            assert new.blob is not None
            assert reading.extents_of_blob(new.blob) == [new]
            assert reading.blob_in_use(new.blob)
            assert reading.extent_at_time(self.log, 0, Micros(10), by_event_time=True) == new
            assert reading.extent_at_time(self.log, 0, Micros(9), by_event_time=True) == held[0]
        append(self.catalog, part(self.log), now=NOW + 99)
        assert self.extents()[-1].size_end == held[-1].size_end + 10

    def test_a_swap_of_extents_that_changed_does_nothing(self) -> None:
        held = self.fill(3, 1, 5)
        with self.catalog.writing() as writing:
            new = self.merged(writing, held[:2])
            assert writing.swap_extents(self.log, held[:2], [new])
        for stale in (held[:2], held[1:], held, held[:1]):
            with self.catalog.writing() as writing:
                assert not writing.swap_extents(self.log, stale, [self.merged(writing, stale)])
        assert self.extents() == [new, held[2]]

    def test_a_log_is_extended_by_extents_that_keep_their_times(self) -> None:
        held = self.fill(3, times=((50, 60),))
        with self.catalog.writing() as writing:
            blob = writing.insert_blob("commits/moved", 500, NOW, "arrow")
            first = self.moved(held[0], 2, blob, appended=(NOW + 5, NOW + 5), events=(10, 20))
            second = self.moved(first, 4, blob, appended=(NOW + 7, NOW + 9), events=(None, None))
            third = self.moved(second, 1, blob, appended=(NOW + 9, NOW + 9), events=(70, 80))
            writing.extend_log(self.log, [first, second])
            writing.extend_log(self.log, [third])
        assert self.extents() == [held[0], first, second, third]
        with self.catalog.reading() as reading:
            state = reading.logs([self.log])[self.log]
            assert (state.length, state.size, state.appended_at, state.event_high) == (10, 100, NOW + 9, 80)
            assert reading.extent_at_time(self.log, 0, Micros(NOW + 8), by_event_time=False) == second
            assert reading.extent_at_time(self.log, 0, Micros(61), by_event_time=True) == third
            assert reading.extents_of_blob(blob) == [first, second, third]
        assert append(self.catalog, part(self.log), now=NOW + 3) == (Appended(10, Micros(NOW + 9)),)
        with self.catalog.reading() as reading:
            assert reading.extent_at_time(self.log, 5, Micros(80), by_event_time=True) == third

    def test_a_log_is_extended_by_inlined_events_too(self) -> None:
        (held,) = self.fill(3)
        inlined = self.moved(held, 2, None, appended=(NOW, NOW))
        with self.catalog.writing() as writing:
            writing.extend_log(self.log, [inlined])
        assert self.extents() == [held, inlined]

    def test_a_log_is_not_extended_by_what_does_not_follow(self) -> None:
        (held,) = self.fill(3)
        good = self.moved(held, 2, None, appended=(NOW, NOW))
        for wrong in (
            replace(good, start=2),
            replace(good, start=4, stop=6),
            replace(good, appended=TimeBounds(Micros(NOW - 1), NOW)),
            replace(good, size_end=held.size_end - 1),
        ):
            with pytest.raises(AssertionError), self.catalog.writing() as writing:
                writing.extend_log(self.log, [wrong])
        with self.catalog.writing() as writing:
            writing.update_log(replace(writing.logs([self.log])[self.log], sealed=True))
        with pytest.raises(AssertionError), self.catalog.writing() as writing:
            writing.extend_log(self.log, [good])
        assert self.extents() == [held]

    def test_a_log_is_not_extended_by_a_blob_from_before_the_horizon(self) -> None:
        (held,) = self.fill(3)
        with self.catalog.writing() as writing:
            writing.set_horizon(Micros(NOW + 1))
        for begun_at, refused in ((NOW, True), (NOW + 1, False)):
            with pytest.raises(BlobExpired) if refused else nullcontext(), self.catalog.writing() as writing:
                blob = writing.insert_blob(f"commits/{begun_at}", 500, Micros(begun_at), "arrow")
                writing.extend_log(self.log, [self.moved(held, 2, blob, appended=(NOW, NOW))])
            assert len(self.extents()) == (1 if refused else 2)

    def test_dropping_extents_spares_what_reaches_out(self) -> None:
        held = self.fill(3, 1, 5, 2)
        with self.catalog.writing() as writing:
            assert writing.drop_extents(self.log, 5) == 2
        assert self.extents() == held[2:]
        with self.catalog.writing() as writing:
            assert writing.drop_extents(self.log, start=5) == 1
        assert self.extents() == held[2:3]
        with self.catalog.writing() as writing:
            assert writing.drop_extents(self.log) == 1
        assert self.extents() == []

    def test_times_are_found_in_what_is_left_behind_the_low_water_mark(self) -> None:
        held = self.fill(3, 1, 5, 2, times=((50, 60), (1, 2), (30, 40), (6, 7)))
        with self.catalog.writing() as writing:
            writing.drop_extents(self.log, 4)
            writing.update_log(replace(writing.logs([self.log])[self.log], low_water=4))
        with self.catalog.reading() as reading:
            for start in (0, 4):
                assert reading.extent_at_time(self.log, start, Micros(35), by_event_time=True) == held[2]
                assert reading.extent_at_time(self.log, start, Micros(0), by_event_time=True) == held[2]
                assert reading.extent_at_time(self.log, start, Micros(NOW), by_event_time=False) == held[2]
                assert reading.extent_at_time(self.log, start, Micros(41), by_event_time=True) is None

    def test_a_dropped_log_takes_its_extents_along(self) -> None:
        unit = Unit((part(self.log, 2, writer="w", blob="commits/a"),))
        self.catalog.commit(Commit((unit,), NOW, (BlobEntry("commits/a", 100, NOW),)))
        (extent,) = self.extents()
        with self.catalog.writing() as writing:
            writing.drop_spans(writing.logs([self.log])[self.log].stream, writing.spans_of_log(self.log)[0][1].segment)
            writing.drop_log(self.log)
        with self.catalog.reading() as reading:
            assert reading.logs([self.log]) == {}
            assert extent.blob is not None
            assert not reading.blob_in_use(extent.blob)
            assert reading.blob_keys(["commits/a"]) == {"commits/a"}
        with self.catalog.writing() as writing:
            writing.drop_blobs([extent.blob])
            assert writing.blob_keys(["commits/a"]) == set()
        assert isinstance(self.log, int)
        assert LogId(self.log) == self.log

    def moved(
        self,
        before: Extent,
        count: int,
        blob: BlobId | None,
        *,
        appended: tuple[int, int],
        events: tuple[int | None, int | None] = (None, None),
    ) -> Extent:
        """An extent of `count` events after another."""
        low, high = (None if time is None else Micros(time) for time in events)
        return Extent(
            log=before.log,
            start=before.stop,
            stop=before.stop + count,
            blob=blob,
            key=None if blob is None else "commits/moved",
            encoding="arrow",
            location=BlobLocation(128, 64),
            schema=before.schema,
            checksum=-7,
            appended=TimeBounds(Micros(appended[0]), Micros(appended[1])),
            events=TimeBounds(low, high),
            size_end=before.size_end + 10 * count,
            data=b"events" if blob is None else None,
        )

    def merged(self, writing: Writing, old: list[Extent]) -> Extent:
        """One Parquet extent that replaces several."""
        key = f"history/{len(writing.blobs_after(0, 1000))}"  # type: ignore[arg-type]
        blob = writing.insert_blob(key, 1000, NOW, "parquet")
        lows = [extent.events.low for extent in old if extent.events.low is not None]
        highs = [extent.events.high for extent in old if extent.events.high is not None]
        return replace(
            old[0],
            stop=old[-1].stop,
            blob=blob,
            key=key,
            encoding="parquet",
            location=BlobLocation(0, 0, 7),
            checksum=0,
            appended=replace(old[0].appended, high=old[-1].appended.high),
            events=replace(old[0].events, low=min(lows, default=None), high=max(highs, default=None)),
            size_end=old[-1].size_end,
            data=None,
        )
