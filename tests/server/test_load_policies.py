"""Load policies of streams, by every front end of a broker that appends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.core.shedding import kept_rows
from anabranch.errors import EventNotFound, InvalidArgument, RateLimited
from anabranch.server.flight.service import FlightService
from anabranch.store import Store
from tests.server.http.serving import Serving, serving

EVENTS = "/v1/streams/s/a/events"
RATE = ab.Rate(events_per_s=5)
COLUMNS = pa.schema([("key", pa.string()), ("n", pa.int64()), ("weight", pa.float64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "river", create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/a", schema=COLUMNS, key="key", scaling=2)
        yield made


@pytest.fixture
def served(store: Store) -> Iterator[Serving]:
    with serving(store) as running:
        yield running


@pytest.fixture
def http(served: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client


@pytest.fixture
def remote(served: Serving) -> Iterator[Store]:
    with FlightService(served.broker) as service:
        with ab.connect(f"anabranch://127.0.0.1:{service.port}") as client:
            yield client
        service.drain(5)


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"key": f"k{n % 5}", "n": n, **more} for n in range(count)]


def stored(store: Store) -> list[dict[str, Any]]:
    with store.reader("s/a") as reader:
        return sorted(reader.to_arrow().to_pylist(), key=lambda row: row["n"])


def test_appends_above_the_rate_are_refused_with_the_time_to_wait(
    store: Store, served: Serving, http: httpx.Client, remote: Store
) -> None:
    store.policies.load("s/a", ab.RejectAbove(RATE))
    assert http.post(EVENTS, json=rows(20)).json()["events"] == 20  # a large append passes, and others wait for it
    for body in (rows(1)[0], rows(3)):
        refused = http.post(EVENTS, json=body)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) >= 1
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    assert http.post(EVENTS, json=rows(1), headers=producer).status_code == 429
    writer = remote.writer("s/a")
    with pytest.raises(RateLimited, match="load policy") as found:
        writer.write(rows(1)[0]).result()
    assert found.value.retry_after_s > 0
    assert len(stored(store)) == 20
    metrics = served.broker.loads
    store.policies.load("s/a", None)
    metrics.refresh(store.streams.get("s/a").id)
    assert http.post(EVENTS, json=rows(1), headers=producer).json()["events"] == 1  # its number is still free
    assert writer.write(rows(1)[0]).result()
    writer.close()
    assert len(stored(store)) == 22


def test_points_of_the_line_protocol_are_held_to_their_streams_policy(
    store: Store, served: Serving, http: httpx.Client
) -> None:
    def write(count: int) -> httpx.Response:
        lines = (f"m,key=k{n % 5} n={n}i,weight=1 {1_700_000_000_000_000_000 + n}" for n in range(count))
        return http.post("/write?db=s", content="\n".join(lines))

    assert write(1).status_code == 204
    store.policies.load("s/m", ab.RejectAbove(RATE))
    served.broker.loads.refresh(store.streams.get("s/m").id)
    assert [write(20).status_code, write(1).status_code] == [204, 429]
    refused = write(1)
    assert int(refused.headers["retry-after"]) >= 1 and "load policy" in refused.json()["error"]
    with store.reader("s/m") as reader:
        assert reader.to_arrow().num_rows == 21
    store.policies.load("s/m", ab.SampleAbove(RATE))
    served.broker.loads.refresh(store.streams.get("s/m").id)
    assert write(1_000).status_code == 204
    with store.reader("s/m") as reader:
        kept = reader.to_arrow().to_pylist()[21:]
    assert 0 < len(kept) < 100 and {row["weight"] for row in kept} == {128.0}


def test_a_durable_stream_is_held_to_its_policy(store: Store, http: httpx.Client) -> None:
    assert http.put("/streams/s/d", headers={"content-type": "text/plain"}).status_code == 201
    store.policies.load("s/d", ab.RejectAbove(ab.Rate(bytes_per_s=1)))
    path, kind = "/streams/s/d", {"content-type": "text/plain"}
    answers = [http.post(path, content=b"x" * 1000, headers=kind).status_code for _ in range(3)]
    assert answers == [204, 429, 429]


def test_a_sample_says_for_how_many_events_each_kept_one_stands(store: Store, http: httpx.Client) -> None:
    store.policies.load("s/a", ab.SampleAbove(RATE))
    answer = http.post(EVENTS, json=rows(1_000)).json()
    kept = stored(store)
    assert 0 < len(kept) == answer["events"] == len(answer["pointers"]) < 100
    assert answer["sampled"] == {"of": 1_000, "weight": 128.0, "rows": [row["n"] for row in kept]}
    assert {row["weight"] for row in kept} == {128.0}
    sent = [http.post(EVENTS, json=row).json() for row in rows(200)]
    assert {each["events"] for each in sent} == {0, 1}
    assert all(each["sampled"]["rows"] == [] for each in sent if not each["events"])
    assert len(stored(store)) == answer["events"] + sum(each["events"] for each in sent)


def test_what_was_sampled_before_is_weighted_by_both(store: Store, http: httpx.Client) -> None:
    store.policies.load("s/a", ab.SampleAbove(RATE))
    answer = http.post(EVENTS, json=rows(1_000, weight=10.0)).json()
    assert {row["weight"] for row in stored(store)} == {10 * answer["sampled"]["weight"]}


def test_below_the_rate_everything_is_kept_without_a_weight(store: Store, http: httpx.Client, remote: Store) -> None:
    store.policies.load("s/a", ab.SampleAbove(ab.Rate(events_per_s=1e6)))
    assert "sampled" not in http.post(EVENTS, json=rows(50)).json()
    with remote.writer("s/a") as writer:
        assert writer.write_batch(pa.Table.from_pylist(rows(50), schema=COLUMNS)).left_out == 0
    assert [row["weight"] for row in stored(store)] == [None] * 100


def test_a_repeated_append_of_a_producer_gets_its_first_answer(
    store: Store, served: Serving, http: httpx.Client
) -> None:
    store.policies.load("s/a", ab.SampleAbove(RATE))
    producer = {"Producer-Id": "p", "Producer-Epoch": "0"}
    answers = []
    for number in range(3):
        for _ in range(2):
            answer = http.post(EVENTS, json=rows(100), headers={**producer, "Producer-Seq": str(number)}).json()
            answers.append(answer)
        store.policies.load("s/a", ab.SampleAbove(RATE) if number == 1 else ab.SampleAbove(ab.Rate(events_per_s=20)))
        served.broker.loads.refresh(store.streams.get("s/a").id)
    for first, again in zip(answers[::2], answers[1::2], strict=True):
        assert (first["duplicate"], again["duplicate"]) == (False, True)
        assert {**first, "duplicate": None} == {**again, "duplicate": None}
        assert first["events"] == len(first["sampled"]["rows"]) > 0
        assert first["events"] * first["sampled"]["weight"] == pytest.approx(100)
    # Another broker, which knows nothing of the load: the repeat keeps the same events.
    with serving(store) as other:
        answer = httpx.post(
            other.url + EVENTS, json=rows(100), headers={**producer, "Producer-Seq": "0"}, timeout=60
        ).json()
    assert answer["sampled"] == answers[0]["sampled"]
    assert sum(row["weight"] for row in stored(store)) == pytest.approx(300)


def test_a_remote_writer_learns_which_of_its_events_are_not_stored(store: Store, remote: Store) -> None:
    store.policies.load("s/a", ab.SampleAbove(RATE))
    with remote.writer("s/a") as writer:
        ack = writer.write_batch(pa.Table.from_pylist(rows(500), schema=COLUMNS), atomic=True)
        ranges = ack.result()
        single = [writer.write(row) for row in rows(50)]
        writer.flush()  # what is not stored is no refusal
    kept = sum(each.stop - each.start for each in ranges)
    assert 0 < kept == 500 - ack.left_out < 100
    found = 0
    for row in range(500):
        try:
            assert store.fetch(ack.pointer(row)).body["n"] == row
            found += 1
        except EventNotFound:
            continue
    assert found == kept
    assert any(_is_kept(each) for each in single)
    assert not all(_is_kept(each) for each in single)


def _is_kept(ack: Any) -> bool:
    try:
        return bool(ack.result())
    except EventNotFound:
        return False


def test_a_policy_is_shown_taken_back_and_gone_with_its_stream(store: Store, http: httpx.Client, remote: Store) -> None:
    assert store.policies.load("s/a") is None
    policy = ab.SampleAbove(ab.Rate(5, "2MB"), weight="weight")
    assert remote.policies.load("s/a", policy) == policy
    assert store.policies.load("s/a") == policy
    shown = http.post("/v1/call/policies.load", json={"name": "s/a"})
    assert json.loads(shown.text)["result"]["weight"] == "weight", shown.text
    store.streams.copy("s/a", "s/b")
    assert store.policies.load("s/b") is None
    assert remote.policies.load("s/a", None) is None
    assert store.policies.load("s/a") is None


def test_sampling_needs_a_column_for_the_weights(store: Store) -> None:
    store.streams.create("s/raw")
    for stream, column in (("s/raw", "weight"), ("s/a", "missing"), ("s/a", "n"), ("s/a", "key")):
        with pytest.raises(InvalidArgument, match="weights"):
            store.policies.load(stream, ab.SampleAbove(RATE, weight=column))
    with pytest.raises(InvalidArgument, match="expected a load policy"):
        store.policies.load("s/a", RATE)  # type: ignore[arg-type]


def test_kept_rows_are_spread_over_single_events() -> None:
    found = sum(kept_rows(1, 8, seed, some=False).size for seed in range(8_000))
    assert found == pytest.approx(1_000, rel=0.1)
