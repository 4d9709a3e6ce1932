"""What a task says that can't reach the store: which machine, and what is missing there. No value of a secret is told."""

from __future__ import annotations

import pickle
import socket

import pytest
from pyspark import TaskContext

from anabranch.errors import (
    InvalidArgument,
    KeyMissing,
    KeysUnreadable,
    StoreNotFound,
    StoreUnavailable,
    StreamNotFound,
)
from anabranch.spark.worker_access import WorkerAccess
from anabranch.store import StoreAddresses

_PLACES = StoreAddresses("postgresql://user:pass@host/db", "s3://bucket/river")


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> WorkerAccess:
    """As it comes to a task, on a machine that lacks the driver's credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    made = pickle.dumps(WorkerAccess(_PLACES))
    assert b"the-secret" not in made
    assert b"pass" not in made
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    found: WorkerAccess = pickle.loads(made)
    return found


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StoreNotFound("/data/river"), "does not see the store's folder /data/river: every machine of the job"),
        (StoreUnavailable("it answered 403"), "has no AWS_SECRET_ACCESS_KEY in its environment"),
        (KeyMissing("main"), "does not have the store's keys"),
        (
            KeysUnreadable("the environment variable RIVER_KEYS, which should hold the keys, is not set"),
            "does not have the store's keys",
        ),
        (KeysUnreadable("the key file /keys can't be read: No such file"), "does not have the store's keys"),
    ],
)
def test_a_task_that_cant_reach_the_store_names_its_machine_and_what_is_missing(
    access: WorkerAccess, error: Exception, told: str
) -> None:
    with pytest.raises(StoreUnavailable) as caught, access.explained():
        raise error
    assert str(caught.value).startswith(f"the Spark worker on {socket.gethostname()} {told}")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [StreamNotFound("s/in"), InvalidArgument("it is none of these")])
def test_other_errors_of_a_task_stay_as_they_are(access: WorkerAccess, error: Exception) -> None:
    with pytest.raises(type(error)) as caught, access.explained():
        raise error
    assert caught.value is error


def test_errors_of_the_driver_and_of_a_store_that_lacks_nothing_stay_as_they_are(
    access: WorkerAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    down = StoreUnavailable("it can't be reached")
    with pytest.raises(StoreUnavailable) as caught, access.explained():
        raise down
    assert caught.value is down
    monkeypatch.setattr(TaskContext, "get", lambda: None)
    missing = StoreNotFound("/data/river")
    with pytest.raises(StoreNotFound) as found, access.explained():
        raise missing
    assert found.value is missing
