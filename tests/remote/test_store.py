"""The store by its broker: what embedded suites don't show."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import anabranch as ab
from anabranch.errors import Closed, JobNotFound, StoreUnavailable, StreamExists, StreamNotFound
from anabranch.store import Store
from anabranch.wire.verbs import VERBS


@pytest.fixture(autouse=True)
def scope(embedded: Store) -> None:
    embedded.scopes.create("iot")


def test_streams_are_managed_as_in_the_store_itself(remote: Store, embedded: Store) -> None:
    made = remote.streams.create("iot/raw", schema={"id": pa.string(), "n": pa.int64()}, key="id", scaling=2)
    assert made == embedded.streams.get("iot/raw") == remote.streams.get("iot/raw")
    assert remote.streams.scale("iot/raw", 3) == embedded.streams.view("iot/raw").current
    embedded.write("iot/raw", pa.table({"id": ["a", "b"], "n": [1, 2]}))
    assert remote.cuts.tail("iot/raw") == embedded.cuts.tail("iot/raw")
    assert remote.cuts.distance("iot/raw") == embedded.cuts.distance("iot/raw")
    copied = remote.streams.copy("iot/raw", "iot/copy")
    assert copied == embedded.streams.copy("iot/raw", "iot/copy2") or copied.copy == remote.streams.get("iot/copy").id
    assert [str(each.name) for each in remote.streams.list("iot")] == ["iot/copy", "iot/copy2", "iot/raw"]
    assert remote.streams.view("iot/raw") == embedded.streams.view("iot/raw")
    assert remote.streams.list("iot").__next__().name.name == "copy"
    remote.policies.retention("iot/raw", ab.RetainFor("7d"))
    assert remote.policies.retention("iot/raw") == ab.RetainFor("7d") == embedded.policies.retention("iot/raw")
    assert remote.cuts.at("iot/raw", datetime(2000, 1, 1, tzinfo=UTC)) == embedded.cuts.head("iot/raw")
    pointer = next(iter(embedded.reader("iot/raw"))).pointer
    event, own = remote.fetch(pointer), embedded.fetch(pointer)
    assert (event.body, event.pointer, event.key, event.appended_us) == (own.body, pointer, own.key, own.appended_us)
    remote.streams.delete("iot/copy")
    assert list(remote.check()) == [] and not embedded.streams.exists("iot/copy")
    assert remote.id == embedded.id


def test_errors_are_those_of_the_store(remote: Store) -> None:
    remote.streams.create("iot/raw")
    with pytest.raises(StreamExists, match="stream 'iot/raw' already exists"):
        remote.streams.create("iot/raw")
    with pytest.raises(StreamNotFound, match="did you mean") as caught:
        remote.streams.get("iot/rax")
    assert caught.value.stream == "iot/rax"


def test_a_call_with_a_request_id_is_done_once(remote: Store) -> None:
    first = remote.streams.create("iot/raw", request="make it")
    assert remote.streams.create("iot/raw", request="make it") == first


def test_a_change_without_a_request_id_gets_one(remote: Any, embedded: Store) -> None:
    sent: list[bytes] = []
    action = remote.connection.action

    def twice(kind: str, body: bytes) -> Any:
        sent.append(body)
        list(action(kind, body))  # its answer is lost
        return action(kind, body)

    remote.connection.action = twice
    assert remote.streams.create("iot/raw").id == embedded.streams.get("iot/raw").id
    assert b'"request":"' in sent[0]


def test_progress_and_the_job_that_runs_are_reported(remote: Store, embedded: Store) -> None:
    embedded.write("iot/raw", pa.table({"n": list(range(1000))}), create=True)
    seen: list[tuple[str, int, int]] = []
    jobs: list[Any] = []
    remote.streams.copy(
        "iot/raw", "iot/copy", independent=True, progress=lambda *report: seen.append(report), started=jobs.append
    )
    assert seen and seen[-1][1] == seen[-1][2] > 0
    (job,) = jobs
    assert job.row().state.value == "done" and job.wait().copy == remote.streams.get("iot/copy").id
    assert [each.id for each in remote.jobs.list()] == [job.id]
    assert remote.jobs.get(job.id).progress().events == 1000
    with pytest.raises(JobNotFound):
        remote.jobs.get("nope")


def test_a_job_goes_on_after_the_call_that_began_it_with_progress(
    remote: Store, embedded: Store, tmp_path: Path
) -> None:
    embedded.write("iot/raw", pa.table({"n": range(1000)}), create=True)
    job = remote.jobs.archive("iot/raw", tmp_path / "archive", progress=lambda *report: None)
    assert job.wait(60).events == 1000


def test_a_job_names_this_store_as_its_source(remote: Any, embedded: Store) -> None:
    embedded.write("iot/raw", pa.table({"n": [1]}), create=True)
    job = remote.jobs.copy(remote, "iot/raw", "iot/copy")
    assert job.wait(60).copy == embedded.streams.get("iot/copy").id


def test_an_ephemeral_stream_is_held_until_the_client_leaves(remote: Store, embedded: Store) -> None:
    with remote.ephemeral.create("iot/tmp") as held:
        assert embedded.ephemeral.is_ephemeral("iot/tmp")
        with remote.ephemeral.hold("iot/tmp") as other:
            assert len(remote.ephemeral.holders("iot/tmp")) == 2
            assert other.id == held.id
        (before,) = embedded.ephemeral.holders(held.id)
        remote.ephemeral._holds._renew_all()  # type: ignore[attr-defined]
        (after,) = embedded.ephemeral.holders(held.id)
        assert after.until > before.until and str(held.state) == "HolderState.HELD"
    assert not embedded.streams.exists("iot/tmp")


def test_the_broker_does_not_renew_what_a_client_holds(remote: Store, embedded: Store) -> None:
    held = remote.ephemeral.create("iot/tmp")
    assert embedded.ephemeral._holds.streams == frozenset()
    held.leave()
    assert not embedded.streams.exists("iot/tmp")


def test_without_a_broker_a_call_ends_in_one_error() -> None:
    settings = ab.Settings(catalog_lock_s=0.2)
    with ab.connect("anabranch://127.0.0.1:1", settings=settings) as store, pytest.raises(StoreUnavailable):
        store.streams.get("a/b")


def test_the_broker_reports_what_it_serves(remote: Any) -> None:
    client = flight.FlightClient(f"grpc://{remote.connection.place}")
    kinds = {each.type: each.description for each in client.list_actions()}
    assert set(VERBS) <= set(kinds)
    assert [name for name, description in kinds.items() if not description] == []


def test_an_append_to_shared_state_whose_answer_was_lost_is_done_once(remote: Any) -> None:
    count = remote.shared.synchronizer("iot/count", initial=0)
    action = remote.connection.action

    def twice(kind: str, body: bytes) -> Any:
        if kind == "revisioned.append":
            list(action(kind, body))  # its answer is lost
        return action(kind, body)

    remote.connection.action = twice
    for expected in (1, 2, 3):
        assert count.update(lambda value: value + 1) == expected
    assert remote.shared.synchronizer("iot/count").state == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeoutError("no answer")])
def test_a_close_that_was_interrupted_is_completed_by_the_next_one(address: str, error: BaseException) -> None:
    class Interrupted:
        closed = 0

        def close(self) -> None:
            self.closed += 1
            if self.closed == 1:
                raise error

    store: Any = ab.connect(address)
    first = store.keep(Interrupted())
    store.streams.create("iot/interrupted")
    reader = store.reader("iot/interrupted")
    with pytest.raises(type(error)):
        store.close()
    with pytest.raises(Closed):
        store.reader("iot/interrupted")
    store.close()
    assert first.closed == 2 and reader.closed
    with pytest.raises(Closed):
        _ = store.connection.channel
    store.close()
    assert first.closed == 2
