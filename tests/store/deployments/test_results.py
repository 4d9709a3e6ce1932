"""Results of deployed queries as readers: of the store itself, and of one behind a broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import InvalidArgument, NoResultsYet, QueryNotFound, StreamRenamed
from anabranch.model.cut import TAIL
from tests.hosted import Hosted
from tests.remote.suites.serving import served
from tests.waiting import sleeps, until


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "river", create=True) as made:
        yield made


@pytest.fixture(params=["own", "through a broker"])
def store(own: ab.Store, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "own":
        yield own
        return
    with served(own) as url, ab.connect(url) as remote:
        yield remote


@pytest.fixture
def hosted(own: ab.Store) -> Hosted:
    own.queries.deploy("means", "…")
    return Hosted(own, "means")


def numbers(reader: Any) -> list[int]:
    with reader:
        return sorted(event.body["n"] for event in reader)


def test_results_are_read_from_a_place_to_another(store: Any, hosted: Hosted) -> None:
    hosted.prepare("out/means")
    hosted.create("out/means")
    hosted.publish("out/means", range(10))
    with store.queries.results("means") as reader:
        assert reader.schema.names[:3] == ["device", "at", "n"]
        assert sorted(event.body["n"] for event in reader) == list(range(10))
        cut = reader.position
    hosted.publish("out/means", range(10, 15))
    assert numbers(store.queries.results("means", start=cut)) == list(range(10, 15))
    assert numbers(store.queries.results("means", end=cut)) == list(range(10))
    assert numbers(store.queries.results("means", "1", start=3_000_000, by="event", end=cut)) == list(range(3, 10))
    with store.queries.results("means", start=cut, follow=True, columns=["n"], batch_rows=1) as reader:
        found = [batch.column("n").to_pylist() for batch in islice(reader.batches(), 5)]
    assert sorted(found) == [[n] for n in range(10, 15)]


def test_a_follower_waits_for_results_and_gets_all_that_come(
    store: Any, hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_AWAIT_S", 0.0123)
    looks = sleeps(store.runtime.tasks, monkeypatch)
    with pytest.raises(NoResultsYet, match="it is waiting; follow its results to wait for them"):
        store.queries.results("means")

    def follow() -> list[int]:
        with store.queries.results("means", start=TAIL, follow=True) as reader:
            return sorted(event.body["n"] for event in islice(reader, 3))

    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(follow)
        until(lambda: 0.0123 in looks)
        hosted.prepare("out/means")
        hosted.create("out/means")
        hosted.publish("out/means", range(3))
        assert following.result(60) == [0, 1, 2]


def test_waiting_in_vain_is_one_error(store: Any, hosted: Hosted) -> None:
    hosted.report("failed", "line 3: no such column")
    for follow in (False, True):
        with pytest.raises(
            NoResultsYet, match="'means' has no results yet: it has failed: line 3: no such column"
        ) as no:
            store.queries.results("means", follow=follow)
        assert (no.value.query, no.value.state, no.value.error) == ("means", "failed", "line 3: no such column")
    hosted.report("waiting")
    store.queries.stop("means")
    hosted.report("stopped")
    with pytest.raises(NoResultsYet, match="it is stopped; start it with"):
        store.queries.results("means", follow=True)
    store.queries.delete("means")
    with pytest.raises(NoResultsYet, match="it is being deleted"):
        store.queries.results("means", follow=True)


def test_what_can_not_be_meant_is_refused(store: Any, own: ab.Store, hosted: Hosted) -> None:
    with pytest.raises(QueryNotFound):
        store.queries.results("none")
    hosted.prepare("out/means", "out/other")
    with pytest.raises(InvalidArgument, match="has several results; name one of: out/means, out/other"):
        store.queries.results("means")
    for wrong in ("0", "3", "mean", "out.means", ""):
        with pytest.raises(InvalidArgument, match="has no result"):
            store.queries.results("means", wrong)
    hosted.create("out/means")
    own.streams.rename("out/means", "out/renamed")
    with pytest.raises(StreamRenamed, match="renamed to 'out/renamed'"):
        store.queries.results("means", "out/means")
