"""What tests of the gRPC front end share: a broker process, and a client."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import anabranch as ab
from tests.server.grpc.client import Client
from tests.server.kit import BrokerProcess

COLUMNS = pa.schema([("sensor", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("value", pa.float64())])


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("grpc")
    with ab.connect(folder / "river", create=True) as store:
        store.scopes.create("iot")
    with BrokerProcess(folder / "river", "--set", "request_bytes_max=1048576", folder=folder) as process:
        yield process


@pytest.fixture(scope="session")
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.addresses["grpc"]) as made:
        yield made
