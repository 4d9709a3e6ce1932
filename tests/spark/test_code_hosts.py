"""Queries with Python code on a host: in a driver of their own, with the code of their version, and only as it was deployed
and signed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import anabranch as ab
from anabranch.catalog.state.query_version import QUERY_CONTENT
from anabranch.deployments.files import check_files
from anabranch.deployments.signatures import TrustedKeys, sign_query
from anabranch.runtime.signing import sign
from tests.spark.hosts import HostProcess, driver_of
from tests.spark.pipelines import new_store, put, rows
from tests.wheels import wheel

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(2400)]

WHEEL = "scoring-1.0-py3-none-any.whl"
CODE = """
import json
import os
from anabranch.spark import resource

def score(celsius):
    return celsius * 0 + json.loads(resource("model.json").read_text())["slope"]

def where(celsius):
    return celsius.astype(int) * 0 + os.getsid(0)
"""
FUNCTIONS = """
CREATE FUNCTION score(celsius DOUBLE) RETURNS DOUBLE AS PYTHON 'scoring:score';
CREATE FUNCTION place(celsius DOUBLE) RETURNS BIGINT AS PYTHON 'scoring:where';
"""
SCORES = (
    FUNCTIONS + "CREATE STREAM out.scores AS SELECT score(celsius) AS s, place(celsius) AS p FROM STREAM iot.sensors"
)
PLAIN = "CREATE STREAM out.{0} AS SELECT device FROM STREAM iot.sensors"


def files(slope: int) -> dict[str, bytes]:
    return {WHEEL: wheel({"scoring.py": CODE}), "model.json": b'{"slope": %d}' % slope}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


@pytest.fixture
def host(store: ab.Store, tmp_path: Path) -> Iterator[HostProcess]:
    started = HostProcess(store, tmp_path / "host.log", "--spares", "1")
    yield started
    started.end()


def has_one_row(store: ab.Store, stream: str) -> bool:
    return store.streams.exists(stream) and len(rows(store, stream)) == 1


def scores(store: ab.Store) -> list[float]:
    return sorted(row["s"] for row in rows(store, "out/scores")) if store.streams.exists("out/scores") else []


def test_a_query_with_a_wheel_has_a_driver_and_a_version_of_its_own(store: ab.Store, host: HostProcess) -> None:
    put(store, [0])
    for name in ("first", "second"):
        store.queries.deploy(name, PLAIN.format(name))
    store.queries.deploy("scores", SCORES, files=files(1))
    host.wait(lambda: scores(store) == [1.0])
    for name in ("out/first", "out/second"):
        host.wait(partial(has_one_row, store, name))
    shared, own = driver_of(store, "first"), driver_of(store, "scores")
    assert shared == driver_of(store, "second") != own
    assert [row["p"] for row in rows(store, "out/scores")] == [own]  # the worker is in the session of the driver

    # Another model: each statement has no state, so it goes on; in a new driver.
    store.queries.upgrade("scores", SCORES, files=files(2))
    host.wait(lambda: driver_of(store, "scores") not in (None, own))
    put(store, [1])
    host.wait(lambda: scores(store) == [1.0, 2.0])
    assert driver_of(store, "first") == shared

    # Rolled back, the earlier model is there again.
    second = driver_of(store, "scores")
    store.queries.rollback("scores")
    host.wait(lambda: driver_of(store, "scores") not in (None, second))
    put(store, [2])
    host.wait(lambda: scores(store) == [1.0, 1.0, 2.0])

    store.queries.delete("scores", drop_results=True)
    host.wait(lambda: [info.name for info in store.queries.list()] == ["first", "second"])
    with store.catalog.reading() as txn:
        assert txn.states(QUERY_CONTENT) == []


def test_a_host_runs_only_what_is_as_it_was_deployed_and_signed(
    store: ab.Store, host: HostProcess, tmp_path: Path
) -> None:
    def refused(name: str, message: str) -> None:
        host.wait(lambda: store.queries.get(name).state == "failed")
        assert message in str(store.queries.get(name).error)

    key = tmp_path / "key.pem"
    key.touch(0o600)
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    store.queries.deploy("unsigned", PLAIN.format("unsigned"), start=False)
    store.queries.deploy("system", SCORES.replace("scoring:score", "os:system"), files=files(1))
    refused("system", "there is no module 'os' for 'score'")
    TrustedKeys(store.changes).add(sign(key, b"").public_key, "release")
    store.queries.start("unsigned")
    refused("unsigned", "version 1 of query 'unsigned' is not signed")

    given = files(1)
    signature = sign_query(key, SCORES, {}, check_files(given))
    store.queries.deploy("changed", SCORES, files=given, signature=signature, start=False)
    with store.catalog.writing() as txn:
        txn.put_state(QUERY_CONTENT, hashlib.sha256(given["model.json"]).hexdigest(), b'{"slope": 9}')
    store.queries.start("changed")
    refused("changed", "does not match its SHA-256")
    assert not store.streams.exists("out/scores")


def test_code_that_is_deployed_while_a_shared_driver_starts_does_not_get_into_it(
    store: ab.Store, tmp_path: Path
) -> None:
    put(store, [0])
    store.queries.deploy("scores", PLAIN.format("plain"))
    host = HostProcess(store, tmp_path / "host.log", "--spares", "0")
    try:
        host.wait(lambda: "query scores: version 1 starts in driver" in host.log.read_text())
        store.queries.deploy("scores", SCORES, files=files(1))
        store.queries.deploy("first", PLAIN.format("first"))
        host.wait(lambda: scores(store) == [1.0])
        host.wait(partial(has_one_row, store, "out/first"))
        own = driver_of(store, "scores")
        assert [row["p"] for row in rows(store, "out/scores")] == [own]
        assert driver_of(store, "first") not in (None, own)
    finally:
        host.end()
