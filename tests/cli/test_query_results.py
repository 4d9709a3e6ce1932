"""`anabranch queries results`: what `read` prints of the result stream, once it is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.query_question import CommittedState, StateRow, StateWanted
from anabranch.deployments.questions import answer, open_questions
from tests.cli.kit import Line
from tests.hosted import Hosted
from tests.waiting import sleeps, until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "river", create=True) as made:
        made.queries.deploy("means", "…")
        yield made


def test_results_are_printed_as_a_stream_is_read(store: ab.Store) -> None:
    hosted, line = Hosted(store, "means"), Line(Path(store.url))
    hosted.prepare("out/means")
    hosted.create("out/means")
    hosted.publish("out/means", range(10))
    for options in (["--json"], ["--format", "csv", "--columns", "n", "--limit", "4"], ["--from", "tail", "--meta"]):
        assert line("queries", "results", "means", *options).out == line("read", "out/means", *options).out
    found = line("queries", "results", "means", "1", "--by", "event", "--from", "1970-01-01T00:00:05Z", "--json").rows
    assert sorted(row["n"] for row in found) == list(range(5, 10))
    assert "has no result '2'; it has: out/means" in line.refused("queries", "results", "means", "2")
    assert "complete only at its end" in line.refused("queries", "results", "means", "--follow", "--format", "parquet")


def test_a_follower_waits_for_the_results_of_a_query_that_starts(
    store: ab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(Path(store.url))
    assert "it is waiting; follow its results to wait for them" in line.refused("queries", "results", "means")
    monkeypatch.setattr(limits, "FOLLOW_AWAIT_S", 0.0123)
    looks = sleeps(store.runtime.tasks, monkeypatch)

    def come() -> None:
        until(lambda: 0.0123 in looks)
        hosted = Hosted(store, "means")
        hosted.prepare("out/means")
        hosted.create("out/means")
        hosted.publish("out/means", range(3))

    with ThreadPoolExecutor(1) as threads:
        coming = threads.submit(come)
        rows = line("queries", "results", "means", "--follow", "--from", "tail", "--limit", "3", "--json").rows
        coming.result()
    assert sorted(row["n"] for row in rows) == [0, 1, 2]


def test_the_last_result_with_a_key_is_printed(store: ab.Store) -> None:
    hosted, line = Hosted(store, "means"), Line(Path(store.url))
    assert "query 'means' has no results yet" in line.refused("queries", "state", "means", "a")
    hosted.prepare("out/means")
    hosted.create("out/means")
    hosted.publish("out/means", range(10))
    expected = {event.key: event.body["n"] for event in store.reader("out/means")}
    for device, number in expected.items():
        assert line("queries", "state", "means", device).rows == [
            {"device": device, "at": f"1970-01-01T00:00:{number:02}.000000Z", "n": number}
        ]
    assert "has no result with the key 'never'" in line.refused("queries", "state", "means", "never")
    assert "pass the KEY of a result, or --committed" in line.refused("queries", "state", "means")


def test_the_committed_state_that_a_host_reads_is_printed(store: ab.Store) -> None:
    hosted, line = Hosted(store, "means"), Line(Path(store.url))
    hosted.prepare("out/means")
    row = StateRow("stateStoreSave", "state", {"device": "a"}, {"count": 2})
    found = CommittedState("out/means", 7, (row,), more=True)
    asked: list[StateWanted | None] = []

    def host() -> None:
        for _ in range(2):
            until(lambda: open_questions(store.catalog, store.runtime.clock.now()) != [])
            (question,) = open_questions(store.catalog, store.runtime.clock.now())
            asked.append(question.wanted)
            answer(store.catalog, question, lambda: {"state": found})

    with ThreadPoolExecutor(1) as threads:
        answering = threads.submit(host)
        printed = line("queries", "state", "means", "a", "--committed", "--batch", "7", "--limit", "1")
        assert printed.rows == [row.to_json()]
        assert "the state after micro-batch 7; there is more: --limit" in printed.err
        whole = line("queries", "state", "means", "--committed", "--json")
        assert json.loads(whole.out) == {"target": "out/means", "batch": 7, "rows": [row.to_json()], "more": True}
        answering.result()
    assert asked == [StateWanted("out/means", "a", 7, 1), StateWanted("out/means", None, None, 100)]
