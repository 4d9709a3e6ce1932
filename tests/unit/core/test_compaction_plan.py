"""Which extents become which files: properties over random logs, and the rules one by one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.compaction import ARROW, PARQUET, CompactionPolicy, FilePlan, LogExtents, plan_compaction
from anabranch.model.append import BlobLocation, TimeBounds
from anabranch.model.ids import BlobId, LogId, Micros, StreamId
from anabranch.model.stream import Extent

NOW = Micros(1_000_000)
POLICY = CompactionPolicy(bytes_min=64, bytes_max=128, extents_min=10, age_us=1_000, parts_max=4)
FORCE = CompactionPolicy(bytes_min=64, bytes_max=128, extents_min=10, age_us=1_000, parts_max=4, force=True)


def log(
    number: int,
    pieces: list[tuple[str, int]],
    *,
    stream: int = 1,
    columns: bytes = b"c",
    appended: int = NOW,
    gaps: frozenset[int] = frozenset(),
) -> LogExtents:
    """A log of (encoding, bytes) extents, one event each; before those in `gaps` an event is missing."""
    extents = []
    size_end = position = 0
    for i, (encoding, size) in enumerate(pieces):
        size_end += size
        position += 1 + (i in gaps)
        extents.append(
            Extent(
                log=LogId(number),
                start=position - 1,
                stop=position,
                blob=BlobId(i),
                key=f"{number}/{i}",
                encoding=encoding,
                location=BlobLocation(0, size),
                schema=1,
                checksum=0,
                appended=TimeBounds(Micros(appended), Micros(appended)),
                events=TimeBounds(None, None),
                size_end=size_end,
            )
        )
    sizes = tuple(size for _, size in pieces)
    return LogExtents(LogId(number), StreamId(stream), columns, 1, tuple(extents), sizes)


def sizes(files: list[FilePlan]) -> list[list[int]]:
    return [[part.size for part in file.parts] for file in files]


PIECES = st.lists(st.tuples(st.sampled_from([ARROW, PARQUET]), st.integers(0, 200)), max_size=30)
LOGS = st.lists(
    st.tuples(
        PIECES,
        st.integers(1, 3),
        st.sampled_from([b"c", b"d"]),
        st.sampled_from([0, int(NOW)]),
        st.frozensets(st.integers(0, 29), max_size=3),
    ),
    max_size=8,
)
Drawn = list[tuple[list[tuple[str, int]], int, bytes, int, frozenset[int]]]


def made(drawn: Drawn) -> list[LogExtents]:
    return [
        log(n + 1, pieces, stream=stream, columns=columns, appended=appended, gaps=gaps)
        for n, (pieces, stream, columns, appended, gaps) in enumerate(drawn)
    ]


@given(LOGS, st.booleans())
def test_every_extent_is_in_at_most_one_file_and_parts_are_unbroken(drawn: Drawn, force: bool) -> None:
    policy = FORCE if force else POLICY
    files = plan_compaction(made(drawn), policy, now=NOW)
    taken = [(part.log, extent.start) for file in files for part in file.parts for extent in part.extents]
    assert len(taken) == len(set(taken))
    for file in files:
        for part in file.parts:
            assert all(a.stop == b.start for a, b in pairwise(part.extents))
            assert {extent.log for extent in part.extents} == {part.log}
            assert part.size == sum(extent.location.length for extent in part.extents)


@given(LOGS, st.booleans())
def test_files_keep_to_their_limits(drawn: Drawn, force: bool) -> None:
    policy = FORCE if force else POLICY
    for file in plan_compaction(made(drawn), policy, now=NOW):
        largest = max(extent.location.length for part in file.parts for extent in part.extents)
        assert file.size <= max(policy.bytes_max, policy.bytes_min + largest)
        assert len({part.columns for part in file.parts}) == 1
        assert len(file.parts) <= policy.parts_max
        assert len(file.parts) == 1 or all(part.size < policy.bytes_min for part in file.parts)


@given(LOGS)
def test_force_takes_every_extent_of_tier_1(drawn: Drawn) -> None:
    logs = made(drawn)
    files = plan_compaction(logs, FORCE, now=NOW)
    taken = {(part.log, extent.start) for file in files for part in file.parts for extent in part.extents}
    fresh = {(each.log, e.start) for each in logs for e in each.extents if e.encoding == ARROW}
    assert fresh <= taken


@given(LOGS, st.booleans())
def test_planning_what_was_just_written_plans_nothing(drawn: Drawn, force: bool) -> None:
    policy = FORCE if force else POLICY
    logs = made(drawn)
    for _ in range(20):
        files = plan_compaction(logs, policy, now=NOW)
        if not files:
            return
        logs = after_compaction(logs, files)
        if force:
            assert plan_compaction(logs, policy, now=NOW) == []
    raise AssertionError("compaction never comes to rest")


def after_compaction(logs: list[LogExtents], files: list[FilePlan]) -> list[LogExtents]:
    """The logs once the files are written and swapped in."""
    parts = {(part.log, part.start): part for file in files for part in file.parts}
    result = []
    for each in logs:
        extents, lengths, at = [], [], 0
        while at < len(each.extents):
            part = parts.get((each.log, each.extents[at].start))
            if part is None:
                extents.append(each.extents[at])
                lengths.append(each.sizes[at])
                at += 1
                continue
            last = part.extents[-1]
            extents.append(
                Extent(
                    log=each.log,
                    start=part.start,
                    stop=part.stop,
                    blob=BlobId(1_000),
                    key="file",
                    encoding=PARQUET,
                    location=BlobLocation(0, part.size),
                    schema=1,
                    checksum=0,
                    appended=last.appended,
                    events=last.events,
                    size_end=last.size_end,
                )
            )
            lengths.append(part.size)
            at += len(part.extents)
        result.append(LogExtents(each.log, each.stream, each.columns, 1, tuple(extents), tuple(lengths)))
    return result


def test_a_large_run_is_cut_evenly_and_nothing_remains() -> None:
    assert sizes(plan_compaction([log(1, [(ARROW, 10)] * 14)], POLICY, now=NOW)) == [[70], [70]]
    assert sizes(plan_compaction([log(1, [(ARROW, 70)] * 3)], POLICY, now=NOW)) == [[70], [70], [70]]
    assert sizes(plan_compaction([log(1, [(ARROW, 500)])], POLICY, now=NOW)) == [[500]]


def test_a_small_run_waits_until_it_is_old_or_in_many_pieces() -> None:
    assert plan_compaction([log(1, [(ARROW, 5)] * 9)], POLICY, now=NOW) == []
    assert sizes(plan_compaction([log(1, [(ARROW, 5)] * 10)], POLICY, now=NOW)) == [[50]]
    assert sizes(plan_compaction([log(1, [(ARROW, 5)], appended=NOW - 1_000)], POLICY, now=NOW)) == [[5]]
    assert plan_compaction([log(1, [(ARROW, 5)], appended=NOW - 999)], POLICY, now=NOW) == []


def test_an_older_file_is_merged_only_with_as_much_behind_it() -> None:
    old = NOW - 1_000
    grown = log(1, [(PARQUET, 40), (PARQUET, 12), (PARQUET, 5), (ARROW, 6)], appended=old)
    assert sizes(plan_compaction([grown], POLICY, now=NOW)) == [[11]]
    more = log(1, [(PARQUET, 40), (PARQUET, 12), (PARQUET, 5), (ARROW, 7)], appended=old)
    assert sizes(plan_compaction([more], POLICY, now=NOW)) == [[64]]
    assert sizes(plan_compaction([grown], FORCE, now=NOW)) == [[63]]


def test_files_that_are_large_enough_are_left_alone() -> None:
    assert plan_compaction([log(1, [(PARQUET, 64), (PARQUET, 200)])], FORCE, now=NOW) == []
    assert plan_compaction([log(1, [(PARQUET, 63)])], FORCE, now=NOW) == []


def test_small_logs_share_files_by_their_columns_and_streams() -> None:
    logs = [
        log(1, [(ARROW, 10)], stream=1),
        log(2, [(ARROW, 10)], stream=2, columns=b"d"),
        log(3, [(ARROW, 10)], stream=3),
        log(4, [(ARROW, 10)], stream=1),
    ]
    files = plan_compaction(logs, FORCE, now=NOW)
    assert [[part.log for part in file.parts] for file in files] == [[1, 4, 3], [2]]


def test_neither_too_many_parts_nor_too_many_bytes_share_a_file() -> None:
    assert [
        len(file.parts) for file in plan_compaction([log(n, [(ARROW, 1)]) for n in range(1, 7)], FORCE, now=NOW)
    ] == [4, 2]
    assert sizes(plan_compaction([log(n, [(ARROW, 60)]) for n in range(1, 4)], FORCE, now=NOW)) == [[60, 60], [60]]
