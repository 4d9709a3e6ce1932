"""The simulation's clients against a real PostgreSQL server whose connections are cut: nothing is lost, doubled or
reordered. Their seed is drawn anew each time; a run on real servers does not repeat itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import psycopg
import pytest

from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.runtime.ports import Runtime
from anabranch.testing.clients import ALGEBRA, CASTS, TRANSACTORS, Cast
from anabranch.testing.rehearsal import Rehearsal
from anabranch.testing.wounds_algebra import forget_the_request
from tests.postgres_server import drop, fresh_url, shared_url

pytestmark = pytest.mark.sim

SECONDS = 3.0
Ports = Callable[[Runtime], tuple[Catalog, Blobs]]


@contextmanager
def place() -> Iterator[Ports]:
    """A new schema of the server, and blobs in memory that all share."""
    url, blobs = fresh_url(), MemoryBlobs()
    yield lambda runtime: (PostgresCatalog(url, runtime), blobs)
    drop(url)


def cut(rng: random.Random) -> None:
    """Cut some of the server's connections, those of other tests too: they have to bear it."""
    with suppress(psycopg.Error), psycopg.connect(shared_url(), autocommit=True) as database:
        database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where pid <> pg_backend_pid() and backend_type = 'client backend' and random() < %s",
            [rng.choice((0.1, 0.5))],
        )


@pytest.mark.parametrize("casts", [CASTS, ALGEBRA], ids=["all", "algebra"])
def test_clients_on_postgres_lose_nothing_though_connections_are_cut(casts: Sequence[Cast]) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    with place() as ports:
        outcome = Rehearsal(seed, ports, seconds=SECONDS, casts=casts, strike=cut).run()
    assert outcome.sound, f"clients of seed {seed}: {outcome.violations or repr(outcome.error)}"
    assert outcome.done["event acknowledged"] > 20, outcome.done


def test_transactions_on_postgres_are_whole_or_not_there_though_connections_are_cut() -> None:
    committed = 0
    for _ in range(20):  # of which the first does, unless the machine is very busy
        seed = random.SystemRandom().randrange(1 << 32)
        with place() as ports:
            outcome = Rehearsal(seed, ports, seconds=SECONDS, casts=TRANSACTORS, strike=cut).run()
        assert outcome.sound, f"clients of seed {seed}: {outcome.violations or repr(outcome.error)}"
        committed += outcome.done["transaction committed"]
        if committed:
            return
    pytest.fail("no transaction was committed in 20 rehearsals")


def test_a_planted_wound_is_found_on_postgres() -> None:
    for seed in range(1, 9):
        with place() as ports, forget_the_request():
            outcome = Rehearsal(seed, ports, seconds=2.0, casts=ALGEBRA).run()
        if not outcome.sound:
            return
    pytest.fail("not found by 8 rehearsals")
