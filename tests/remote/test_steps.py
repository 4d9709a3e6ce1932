"""Several calls in one request of a client."""

from __future__ import annotations

from typing import cast

import pytest

from anabranch.errors import InvalidArgument, StreamExists, StreamNotFound
from anabranch.remote.store import RemoteStore
from anabranch.store import Store
from anabranch.transfer.jobs.manager import Jobs


@pytest.fixture
def client(remote: Store, embedded: Store) -> RemoteStore:
    embedded.scopes.create("iot")
    embedded.streams.create("iot/raw")
    with embedded.writer("iot/raw") as writer:
        for number in range(3):
            writer.write(b"%d" % number)
    return cast("RemoteStore", remote)


def test_later_calls_use_results_of_earlier_ones(client: RemoteStore, embedded: Store) -> None:
    steps = client.steps()
    steps.call("streams.copy", source="iot/raw", target="iot/copied")
    made = steps.call("streams.get", name="iot/copied")
    head = steps.call("cuts.head", name=made["name"])
    cut = steps.call("cuts.after", name=made["id"], cut=head, events=2)
    steps.call("streams.truncate", name=made["id"], cut=cut)
    steps.call("streams.list", scope="iot")
    steps.call("streams.tag", name="iot/raw", tags={"copy": made["name"]["text"]})
    results = steps.run()
    assert results[1].id == embedded.streams.get("iot/copied").id
    assert results[3] == embedded.cuts.head("iot/copied")
    assert [str(each.name) for each in results[5]] == ["iot/copied", "iot/raw"]
    assert embedded.streams.get("iot/raw").tags == {"copy": "iot/copied"}


def test_an_error_is_raised_with_its_step(client: RemoteStore, embedded: Store) -> None:
    steps = client.steps()
    steps.call("scopes.create", name="lab")
    steps.call("streams.get", name="lab/none")
    with pytest.raises(StreamNotFound, match=r"step 2, streams\.get: stream 'lab/none' not found") as failed:
        steps.run()
    assert vars(failed.value)["step"] == 2 and failed.value.stream == "lab/none"
    assert [scope.name for scope in embedded.scopes.list()] == ["iot", "lab"]
    with pytest.raises(InvalidArgument, match="'explode' is not a verb"):
        steps.call("explode")


def test_a_job_is_wrapped_and_a_request_done_once(client: RemoteStore, embedded: Store) -> None:
    assert isinstance(embedded.jobs, Jobs)
    job = embedded.jobs.copy(embedded, "iot/raw", "iot/moved")
    job.wait()
    steps = client.steps()
    steps.call("jobs.get", job=job.id)
    steps.call("streams.rename", stream="iot/moved", name="iot/done")
    first = steps.run(request="once")
    embedded.streams.rename("iot/done", "iot/moved")
    again = steps.run(request="once")
    assert first[0].id == again[0].id == job.id and first[0].row() == job.row()
    assert embedded.streams.exists("iot/moved"), "it is not renamed a second time"


def test_in_a_transaction_nothing_is_done_after_an_error(client: RemoteStore, embedded: Store) -> None:
    steps = client.steps()
    steps.call("scopes.create", name="lab")
    steps.call("streams.copy", source="iot/raw", target="lab/copied")
    steps.call("streams.seal", name="lab/copied")
    steps.call("streams.rename", stream="lab/copied", name="iot/raw")
    with pytest.raises(StreamExists, match=r"step 4, streams\.rename") as failed:
        steps.run(transaction=True)
    assert vars(failed.value)["step"] == 4
    assert [scope.name for scope in embedded.scopes.list()] == ["iot"]
    embedded.streams.rename("iot/raw", "iot/before")
    steps = client.steps()
    steps.call("scopes.create", name="lab")
    made = steps.call("streams.create", name="lab/new")
    steps.call("streams.tag", name=made["id"], tags={"x": "y"})
    first = steps.run(transaction=True, request="once")
    assert embedded.streams.get("lab/new").tags == {"x": "y"}
    assert steps.run(transaction=True, request="once")[1] == first[1]
    steps.call("jobs.list")
    with pytest.raises(InvalidArgument, match=r"step 4: jobs\.list can't be part of a transaction"):
        steps.run(transaction=True)
