"""Replays on a host, both real processes: new results are built beside the present ones and take their place. The tests build
on each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Conflict, QueryNotFound
from tests.spark.hosts import HostProcess, kill_driver
from tests.spark.pipelines import COUNTS, counted, expected, new_store, put, rows

pytestmark = [pytest.mark.spark, pytest.mark.process]

LAST = "CREATE STREAM out.last AS SELECT device, events FROM STREAM out.counts"
BEFORE = f"{COUNTS};{LAST}"
AFTER = BEFORE.replace("sum(celsius) AS total", "sum(celsius) * 2 AS total")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ab.Store]:
    with new_store(tmp_path_factory.mktemp("replayed") / "river") as opened:
        yield opened


@pytest.fixture(scope="module")
def host(store: ab.Store) -> Iterator[HostProcess]:
    serving = HostProcess(store, Path(store.url).parent / "host.log", "--spares", "0", "--lease", "5s")
    yield serving
    serving.end()


def doubled(found: Counter[tuple[int, str, int, float]]) -> Counter[tuple[int, str, int, float]]:
    return Counter({(start, device, n, total * 2): each for (start, device, n, total), each in found.items()})


def gone(store: ab.Store, query: str) -> bool:
    try:
        store.queries.get(query)
    except QueryNotFound:
        return True
    return False


def test_a_replay_takes_the_place_of_its_query_and_keeps_the_earlier_results(
    store: ab.Store, host: HostProcess
) -> None:
    put(store, range(200))
    store.queries.deploy("counts", BEFORE)
    host.wait(lambda: store.streams.exists("out/last") and counted(store) == expected(store, until=199 - 5))
    earlier = counted(store)
    store.aliases.add("out/counts", "out/totals")
    store.policies.retention("out/counts", ab.RetainFor("90d"))
    made = store.queries.replay("counts", AFTER, start_from="head")
    assert (made.name, made.replaces, made.version) == ("counts-replay-2", "counts", 2)
    with pytest.raises(Conflict, match="is being replayed by 'counts-replay-2'"):
        store.queries.deploy("counts", COUNTS)
    host.wait(lambda: gone(store, "counts-replay-2"))
    assert store.queries.get("counts").version == 2
    put(store, range(200, 300))
    after = doubled(expected(store, until=299 - 5))
    host.wait(lambda: counted(store) == after)
    assert counted(store, "out/totals") == after
    assert store.policies.retention("out/counts") == ab.RetainFor("90d")
    kept = counted(store, "out/counts_v1")
    assert kept & earlier == earlier
    assert kept - expected(store, until=299 - 5) == Counter()
    host.wait(lambda: len(rows(store, "out/last")) == sum(after.values()))
    wanted = Counter((device, n) for _, device, n, _ in after.elements())
    assert Counter((row["device"], row["events"]) for row in rows(store, "out/last")) == wanted
    names = {str(each.name) for each in store.streams.list("out")}
    assert {name for name in names if "replay" in name} == set()


@pytest.mark.slow
def test_a_query_that_took_over_goes_on_from_the_checkpoints_of_its_replay(store: ab.Store, host: HostProcess) -> None:
    host.wait(lambda: store.queries.get("counts").state == "running")
    kill_driver(store, "counts")
    put(store, range(300, 400))
    after = doubled(expected(store, until=399 - 5))
    host.wait(lambda: counted(store) == after)
    store.queries.deploy("counts", BEFORE, start_from="head", replace_results=True)
    host.wait(lambda: counted(store) == expected(store, until=399 - 5))
    folders = {path.name for path in (Path(store.url) / "pipelines").iterdir() if any(path.iterdir())}
    assert folders == {"counts"}


@pytest.mark.slow
def test_a_replay_that_is_deleted_leaves_its_query_alone(store: ab.Store, host: HostProcess) -> None:
    store.streams.create("out/hot", schema=pa.schema([("device", pa.string())]))
    host.wait(lambda: store.queries.get("counts").state == "running")
    taken = f"{BEFORE};CREATE STREAM out.hot AS SELECT device FROM STREAM iot.sensors WHERE celsius > 5"
    made = store.queries.replay("counts", taken, keep_results=False).name
    host.wait(lambda: store.queries.get(made).state == "failed")
    assert "'out/hot' is not a stream that query 'counts' writes" in str(store.queries.get(made).error)
    store.queries.delete(made)
    host.wait(lambda: gone(store, made))
    assert store.queries.get("counts").version == 3
    assert counted(store) == expected(store, until=399 - 5)
    assert not any("replay" in str(each.name) for each in store.streams.list("out"))


@pytest.mark.slow
def test_a_deletion_with_results_deletes_what_the_replay_kept(store: ab.Store, host: HostProcess) -> None:
    store.streams.copy("out/counts_v1", "out/mine")
    assert {"out/counts", "out/last", "out/counts_late", "out/counts_v1"} <= set(store.queries.get("counts").made)
    store.queries.delete("counts", drop_results=True)
    host.wait(lambda: gone(store, "counts"))
    assert {str(each.name) for each in store.streams.list("out")} == {"out/mine", "out/hot"}
    assert not any(any(path.iterdir()) for path in (Path(store.url) / "pipelines").iterdir())
