"""kill -9 at random moments of all that a deployed query with a hot standby consists of, under a steady load: its results
are those of a run that nothing disturbed, and the standby takes over wherever the leader can't go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.spark.clusters import Cluster, running_cluster
from tests.spark.hosts import HostProcess, store_on
from tests.spark.standby_kills import StandbyQuery, executors_of, java_of, kill, kill_all, sources_of, workers_of

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(2400)]


@contextmanager
def hosted(
    catalog: str,
    folder: Path,
    seed: int,
    *options: str,
    hosts: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Iterator[StandbyQuery]:
    """The query on some hosts, which have no spare drivers unless the options say so."""
    print(f"seed {seed}")
    with store_on(catalog, folder) as store:

        def add_host(name: str) -> HostProcess:
            return HostProcess(store, folder / f"{name}.log", "--spares", "0", *options, environment=environment)

        query = StandbyQuery(store, [add_host(f"host-{n}") for n in range(hosts)], Random(seed), add_host)
        try:
            yield query
        finally:
            query.close()


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandbyQuery]:
    """One host for several kills."""
    with hosted("sqlite", tmp_path_factory.mktemp("kills"), 0, "--spares", "1") as made:
        yield made


@pytest.fixture
def chance(query: StandbyQuery, seed: int) -> Random:
    print(f"seed {seed}")
    query.chance = chance = Random(seed)
    return chance


@pytest.mark.usefixtures("chance")
def test_the_standby_takes_over_from_a_killed_driver(query: StandbyQuery) -> None:
    query.take_over(kill)
    query.check_all()


@pytest.mark.usefixtures("chance")
def test_a_standby_that_is_behind_first_does_what_the_leader_has_published(query: StandbyQuery) -> None:
    query.take_over_from_behind()
    query.check_all()


@pytest.mark.usefixtures("chance")
def test_the_standby_takes_over_from_a_driver_whose_java_was_killed(query: StandbyQuery) -> None:
    query.take_over(lambda leader: kill(java_of(leader)))
    query.check_all()


def test_the_standby_takes_over_from_a_driver_whose_python_workers_were_killed(
    query: StandbyQuery, chance: Random
) -> None:
    query.take_over(lambda leader: kill(chance.choice(sources_of(leader))))
    query.take_over(lambda leader: kill_all([*workers_of(leader), *sources_of(leader)]))
    query.go_on(lambda leader: kill(chance.choice(workers_of(leader))))
    query.check_all()


@pytest.mark.usefixtures("chance")
def test_a_killed_standby_does_not_disturb_its_leader_and_is_followed_by_another(query: StandbyQuery) -> None:
    leader, killed = query.wait_moment()
    log, epoch = query.log(), query.store.queries.get("counts").epoch
    kill(killed)
    query.wait_published()
    query.wait_followed(killed)
    query.check_all()
    assert (query.leader, query.store.queries.get("counts").epoch) == (leader, epoch)
    assert not [line for line in query.log()[len(log) :] if "starts" in line or "taken over" in line]


@pytest.mark.usefixtures("chance")
def test_a_standby_that_is_killed_while_it_takes_over_leaves_no_trace(query: StandbyQuery) -> None:
    for _ in range(2):
        leader, standby = query.wait_moment()
        kill(leader)
        query.moment()
        kill(standby)
        query.wait(lambda leader=leader, standby=standby: query.leader not in (None, leader, standby))  # type: ignore[misc]
        query.wait_published()
        query.check_so_far()
    query.check_all()


@pytest.mark.parametrize("catalog", ["sqlite", "postgres"])
def test_the_standby_on_another_host_takes_over_from_a_killed_host(catalog: str, tmp_path: Path, seed: int) -> None:
    with hosted(catalog, tmp_path, seed, hosts=2) as query:
        query.wait_apart()
        first = query.hosts_of()[0]
        query.take_over(lambda _: query.kill_host(first))
        # A host that comes later gets the standby, although the one that runs the query may have one by then.
        query.add_host("later")
        query.wait_apart()
        (leader, killed), (runs, later) = query.wait_moment(), query.hosts_of()
        query.kill_host(later, with_drivers=True)
        query.wait_followed(killed)
        query.check_all()
        assert query.leader == leader
        assert query.hosts_of() == (runs, runs)


def test_the_standby_takes_over_with_blobs_and_checkpoints_in_s3(tmp_path: Path, seed: int) -> None:
    with hosted("postgres+s3", tmp_path, seed) as query:
        query.take_over(kill)
        query.take_over(lambda leader: kill(java_of(leader)))
        query.check_all()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster() as made:
        yield made


def test_on_a_cluster_killed_executors_and_a_killed_driver_leave_no_trace(
    cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    cluster.start_worker(cores=6)
    one_core = ("--conf", "spark.cores.max=1")
    with hosted("sqlite", tmp_path, seed, *one_core, environment=cluster.environment) as query:
        query.go_on(lambda leader: kill_all(executors_of(leader)))
        leader, standby = query.wait_moment()
        kill_all(executors_of(standby))
        query.wait_published()
        query.wait_ready()
        assert query.leader == leader
        query.take_over(kill)
        query.check_all()
