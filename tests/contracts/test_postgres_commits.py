"""The commit function against its oracle, and under contention."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.model.append import Appended, BlobEntry, Commit, Progress, Refusal, Refused, Unit
from anabranch.model.ids import LogId, Micros, WriterId
from anabranch.runtime.ports import Runtime
from tests.contracts.catalog.samples import NOW, append, new_stream, part
from tests.postgres_server import drop, fresh_url
from tests.waiting import PATIENCE_S, until_ended


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    made = fresh_url()
    yield made
    drop(made)


@pytest.fixture(scope="module")
def catalog(url: str) -> Iterator[PostgresCatalog]:
    opened = PostgresCatalog(url, Runtime())
    yield opened
    opened.close()


# A part says: log, count, writer, sequence number as distance from what the writer sent last, carried fence,
# condition as distance from the length or None, the log's fence or None, and the age of its blob or None.
parts = st.tuples(
    st.integers(0, 2),
    st.integers(1, 3),
    st.sampled_from([None, "a", "a", "b"]),
    st.sampled_from([0, 0, 0, 0, 0, -1, -2, -3, 1]),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([None, None, None, 0, 1]),
    st.sampled_from([None, None, 0, 2]),
    st.sampled_from([None, None, 0, 5, 15]),
)
units = st.tuples(st.lists(parts, min_size=1, max_size=4), st.sampled_from([None] * 6 + [0, 1]))
commits = st.tuples(st.just("commit"), st.lists(units, min_size=1, max_size=6))
# A part that comes alone is decided by other code of the function.
lone = st.tuples(st.just("commit"), st.tuples(st.tuples(st.tuples(parts), st.none())))
changes = st.tuples(
    st.sampled_from(["seal", "unseal", "fence", "take over", "horizon", "many"]), st.integers(0, 2), st.integers(0, 20)
)
steps = st.lists(st.one_of(commits, commits, lone, lone, lone, changes), max_size=14)


class _Pair:
    """One history on PostgreSQL and on SQLite, where `core.decide` itself decides."""

    examples = 0

    def __init__(self, *catalogs: Catalog) -> None:
        _Pair.examples += 1
        self.number = _Pair.examples
        self.catalogs = catalogs
        self.now = NOW + 1_000_000 * self.number
        self.horizon = 0
        self.sent: dict[tuple[int, str], int] = {}
        self.lengths = [0, 0, 0]
        self.logs = [
            [new_stream(each, 10 * self.number + n, f"s{self.number}/n{n}") for n in range(3)] for each in catalogs
        ]

    def commit(self, asked: list[tuple[list[tuple[Any, ...]], int | None]]) -> None:
        self.now += 3
        blobs: dict[str, BlobEntry] = {}
        made: list[list[Unit]] = [[] for _ in self.catalogs]
        for fields, request in asked:
            runs = []
            for log, count, writer, distance, carried, condition, fence, age in fields:
                first = 0 if writer is None else max(0, self.sent.get((log, writer), 0) + distance)
                if writer is not None and distance >= 0:
                    self.sent[log, writer] = first + count
                key = None
                if age is not None:
                    key = f"commits/{self.number}/{self.now - age}"
                    blobs[key] = BlobEntry(key, 100, Micros(self.now - age))
                expected = None if condition is None else self.lengths[log] + condition
                run = part(
                    log, count, writer=writer, first=first, writer_fence=carried, expected=expected, fence=fence,
                    blob=key, times=None if count == 2 else (self.now - count, self.now + count),
                )  # fmt: skip
                runs.append((log, run))
            name = None if request is None else f"r{self.number}/{request}/{len(fields)}"
            for units_of, logs in zip(made, self.logs, strict=True):
                units_of.append(Unit(tuple(replace(run, log=logs[log]) for log, run in runs), name))
        answers = [
            each.commit(Commit(tuple(its), Micros(self.now), tuple(blobs.values())))
            for each, its in zip(self.catalogs, made, strict=True)
        ]
        assert answers[0] == answers[1]
        self.compare()

    def change(self, kind: str, log: int, number: int) -> None:
        for each, logs in zip(self.catalogs, self.logs, strict=True):
            ident = logs[log]
            with each.writing() as txn:
                state = txn.logs([ident])[ident]
                if kind in ("seal", "unseal"):
                    txn.update_log(replace(state, sealed=kind == "seal"))
                elif kind == "fence":
                    txn.update_log(replace(state, fence=number % 3))
                elif kind == "take over":
                    known = txn.progress(ident, WriterId("a")) or Progress()
                    txn.put_progress(ident, WriterId("a"), replace(known, fence=known.fence + 1), now=NOW)
                elif kind == "horizon":
                    txn.set_horizon(Micros(self.now - number))
        if kind == "many":
            self.commit([([(log, 1, "b", 0, 0, None, None, None)], None) for _ in range(number)])

    def compare(self) -> None:
        states = []
        for each, logs in zip(self.catalogs, self.logs, strict=True):
            with each.reading() as txn:
                held = txn.logs(logs)
                states.append(
                    [
                        (
                            replace(held[log], id=LogId(0)),
                            txn.writers_of_log(log, WriterId(""), 10),
                            [replace(e, log=LogId(0), blob=None) for e in txn.extents(log, 0, 1 << 40, 1000)],
                        )
                        for log in logs
                    ]
                )
        assert states[0] == states[1]
        self.lengths = [state.length for state, _, _ in states[1]]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
def test_the_function_decides_as_its_oracle(
    catalog: PostgresCatalog, oracle: SqliteCatalog, history: list[Any]
) -> None:
    pair = _Pair(catalog, oracle)
    for step in history:
        if step[0] == "commit":
            pair.commit(step[1])
        else:
            pair.change(*step)


@pytest.fixture(scope="module")
def oracle() -> Iterator[SqliteCatalog]:
    made = SqliteCatalog(None, Runtime())
    yield made
    made.close()


def test_as_many_batches_are_kept_as_the_limit_says(catalog: PostgresCatalog) -> None:
    # The number stands in the function too.
    log = new_stream(catalog, 2_000_000, "kept/one")
    for first in range(0, 3 * limits.WRITER_BATCHES_KEPT, 2):
        append(catalog, part(log, writer="w", first=first), part(log, writer="w", first=first + 1))
    append(catalog, *[part(log, writer="all", first=first) for first in range(40)])
    with catalog.reading() as txn:
        assert [len(progress.recent) for _, progress in txn.writers_of_log(log, WriterId(""), 9)] == [16, 16]
    assert limits.WRITER_BATCHES_KEPT == 16


def test_a_batch_that_sixteen_threads_send_at_once_lands_once(catalog: PostgresCatalog) -> None:
    logs = [new_stream(catalog, 3_000_000 + n, f"contended/n{n}") for n in range(3)]
    rounds, threads = 50, 16
    gate = threading.Barrier(threads)
    answers: list[list[tuple[Any, ...]]] = [[] for _ in range(threads)]

    def send(me: int) -> None:
        for number in range(rounds):
            gate.wait(PATIENCE_S)
            order = logs if me % 2 else logs[::-1]
            verdicts = append(catalog, *[part(log, writer="w", first=number) for log in order])
            answers[me].append(verdicts if me % 2 else verdicts[::-1])

    _together(send, threads)
    for number in range(rounds):
        for place in range(len(logs)):
            verdicts = [answer[number][place] for answer in answers]
            assert Counter(replace(each, duplicate=False) for each in verdicts) == {Appended(number, NOW): threads}
            assert sum(not each.duplicate for each in verdicts) == 1
    with catalog.reading() as txn:
        assert {state.length for state in txn.logs(logs).values()} == {rounds}
        assert [len(txn.extents(log, 0, 1000, 1000)) for log in logs] == [rounds] * 3


_PROCESS = """
import sys
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.model.append import Appended
from anabranch.runtime.ports import Runtime
from tests.contracts.catalog.samples import append, part
url, me, *logs = sys.argv[1:]
catalog = PostgresCatalog(url, Runtime())
for number in range(60):
    for log in logs:
        for _ in range(2):
            (own, shared) = append(
                catalog, part(int(log), writer=f"w{me}", first=number), part(int(log), writer="shared", first=number)
            )
            assert isinstance(own, Appended), own
            # Whoever comes late finds it landed, or forgotten; nobody is told that it is new once more.
    assert own.duplicate
catalog.close()
"""


@pytest.mark.process
def test_nothing_that_four_processes_send_twice_lands_twice(catalog: PostgresCatalog, url: str) -> None:
    logs = [new_stream(catalog, 4_000_000 + n, f"processes/n{n}") for n in range(2)]
    command = [sys.executable, "-c", _PROCESS, url]
    running = [subprocess.Popen([*command, str(me), *map(str, logs)]) for me in range(4)]
    assert [each.wait(200) for each in running] == [0] * 4
    with catalog.reading() as txn:
        for log in logs:
            progress = dict(txn.writers_of_log(log, WriterId(""), 10))
            assert {name: each.next for name, each in progress.items()} == {
                **{f"w{me}": 60 for me in range(4)},
                "shared": 60,
            }
            extents = txn.extents(log, 0, 1 << 40, 10_000)
            assert [extent.start for extent in extents] == list(range(5 * 60))
            assert txn.logs([log])[log].length == 5 * 60


@pytest.mark.slow
def test_commits_and_transactions_that_lock_in_other_orders_all_end(catalog: PostgresCatalog) -> None:
    logs = [new_stream(catalog, 5_000_000 + n, f"orders/n{n}") for n in range(2)]

    def send(me: int) -> None:
        for number in range(5):
            if me:
                append(catalog, *[part(log, writer=f"w{me}", first=number) for log in logs])
                continue
            with catalog.writing() as txn:
                held = txn.logs(logs[1:])
                Runtime().tasks.sleep(0.05)  # so that a commit holds the one and waits for the other
                held |= txn.logs(logs[:1])
                for state in held.values():
                    txn.update_log(replace(state, fence=state.fence + 1))

    _together(send, 4)
    with catalog.reading() as txn:
        assert [(state.length, state.fence) for state in txn.logs(logs).values()] == [(15, 5)] * 2


def test_what_a_transaction_has_read_of_a_log_does_not_move_until_it_ends(catalog: PostgresCatalog) -> None:
    log = new_stream(catalog, 6_000_000, "still/one")
    stream = 6_000_000
    for look in (
        lambda txn: txn.view(stream).logs[log].length,
        lambda txn: txn.logs([log])[log].length,
        lambda txn: (txn.progress(log, WriterId("w")) or Progress()).next,
    ):
        landed = threading.Event()
        with catalog.writing() as txn:
            before = look(txn)
            number = before

            def send() -> None:
                append(catalog, part(log, writer="w", first=number))  # noqa: B023 joined in the same turn
                landed.set()  # noqa: B023

            thread = threading.Thread(target=send)
            thread.start()
            assert not landed.wait(0.1)
            assert look(txn) == before
        until_ended(thread)
        assert landed.is_set()


def _together(work: Any, threads: int) -> None:
    """Run `work(n)` in so many threads; the first failure is raised."""
    failures: list[BaseException] = []

    def guarded(me: int) -> None:
        try:
            work(me)
        except BaseException as exc:
            failures.append(exc)

    running = [threading.Thread(target=guarded, args=(me,), daemon=True) for me in range(threads)]
    for each in running:
        each.start()
    until_ended(*running)
    if failures:
        raise failures[0]


def test_a_lone_part_in_a_blob_behind_the_horizon_is_refused(catalog: PostgresCatalog) -> None:
    log = new_stream(catalog, 7_000_000, "lone/one")
    with catalog.writing() as txn:
        txn.set_horizon(Micros(txn.horizon() + 10))
        horizon = txn.horizon()
    for begun, verdict in ((horizon - 1, Refused(Refusal.EXPIRED, horizon)), (horizon, Appended(0, NOW))):
        blob = BlobEntry(f"commits/lone-{begun}", 9, Micros(begun))
        commit = Commit((Unit((part(log, writer="w", blob=blob.key),)),), NOW, (blob,))
        assert catalog.commit(commit) == ((verdict,),)
    assert catalog.commit(commit) == ((Appended(0, NOW, duplicate=True),),)
