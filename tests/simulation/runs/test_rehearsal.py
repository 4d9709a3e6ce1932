"""The simulation's clients against a real PostgreSQL server whose connections are cut: nothing is lost, doubled or
reordered. A run on real servers does not repeat itself, whatever its seed."""

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
from tests.postgres_server import drop, fresh_url, shared_url
from tests.simulation.clients import ALGEBRA, MIXES, TRANSACTIONS, ClientMix
from tests.simulation.planted_faults.algebra import forget_the_request
from tests.simulation.rehearsal import Rehearsal

pytestmark = pytest.mark.sim

SECONDS = 3.0
REHEARSALS_MAX = 20  # of which one will do, unless the machine is very busy
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


def rehearse(seed: int, mixes: Sequence[ClientMix], what: str, times: int) -> None:
    """Rehearse, again where less was done than is wanted: how much clients do in a while depends on the machine."""
    done = 0
    for number in range(REHEARSALS_MAX):
        with place() as ports:
            outcome = Rehearsal(seed + number, ports, seconds=SECONDS, mixes=mixes, strike=cut).run()
        assert outcome.sound, f"clients of seed {seed + number}: {outcome.violations or repr(outcome.error)}"
        done += outcome.done[what]
        if done >= times:
            return
    pytest.fail(f"{REHEARSALS_MAX} rehearsals did {what!r} {done} times")


@pytest.mark.parametrize("mixes", [MIXES, pytest.param(ALGEBRA, marks=pytest.mark.slow)], ids=["all", "algebra"])
def test_clients_on_postgres_lose_nothing_though_connections_are_cut(mixes: Sequence[ClientMix], seed: int) -> None:
    rehearse(seed, mixes, "event acknowledged", 20)


@pytest.mark.slow
def test_transactions_on_postgres_are_whole_or_not_there_though_connections_are_cut(seed: int) -> None:
    rehearse(seed, TRANSACTIONS, "transaction committed", 1)


@pytest.mark.slow
def test_a_planted_fault_is_found_on_postgres() -> None:
    for seed in range(1, 9):
        with place() as ports, forget_the_request():
            outcome = Rehearsal(seed, ports, seconds=2.0, mixes=ALGEBRA).run()
        if not outcome.sound:
            return
    pytest.fail("not found by 8 rehearsals")
