"""Flight SQL by user name and password: the handshake, and the JDBC driver over it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyarrow import flight

from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from tests.server.flight import jdbc
from tests.server.flight.test_sql import _TwoCallers
from tests.store.helpers import store_at

_ROWS = 300_000
_KINDS = pa.schema(
    [
        ("n", pa.int64()),
        ("name", pa.string()),
        ("value", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightService]:
    with store_at("sqlite", tmp_path_factory.mktemp("drivers")) as store:
        store.streams.create("s/kinds", schema=_KINDS)
        first = {"n": 1, "name": "a", "value": 1.5, "price": Decimal("12.30"), "tags": ["x", "y"]}
        first["at"] = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
        rows = pa.Table.from_pylist([first, {"n": 2}], schema=_KINDS)
        store.writer("s/kinds").write_batch(rows).result()
        numbers = pa.table({"n": list(range(_ROWS))})
        store.streams.create("s/numbers", schema=numbers.schema)
        store.writer("s/numbers").write_batch(numbers).result()
        store.scopes.create("private")
        store.streams.create("private/names", schema=_KINDS)
        with FlightService(Broker(store, _TwoCallers())) as service:
            yield service


@pytest.fixture
def client(served: FlightService) -> Iterator[flight.FlightClient]:
    with flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as made:
        yield made


def _options(header: bytes) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", header)])


def test_a_handshake_turns_a_password_into_a_bearer_token(client: flight.FlightClient) -> None:
    answered = client.authenticate_basic_token("anyone", "wide")
    assert answered == (b"authorization", b"Bearer wide")
    assert client.list_actions(flight.FlightCallOptions(headers=[answered]))


@pytest.mark.parametrize("password", ["nobody", "", "wide:"])
def test_a_handshake_with_another_password_is_refused(client: flight.FlightClient, password: str) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError, match="unknown token"):
        client.authenticate_basic_token("wide", password)


def test_each_call_may_have_a_password_instead_of_a_handshake(client: flight.FlightClient) -> None:
    assert client.list_actions(_options(b"Basic " + b64encode(b"anyone:wide")))
    with pytest.raises(flight.FlightUnauthenticatedError, match="unknown token"):
        client.list_actions(_options(b"Basic " + b64encode(b"wide:nobody")))


@pytest.mark.parametrize("sent", [b"%%%", b64encode(b"wide"), b64encode(b"a:wide\r\nx: y"), b64encode(b"a:\xff\x00")])
def test_a_malformed_password_is_one_clear_error(client: flight.FlightClient, sent: bytes) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError, match="Authorization: Basic"):
        client.list_actions(_options(b"Basic " + sent))
    assert client.list_actions(_options(b"Bearer wide"))


@pytest.mark.parametrize("password", ["a\r\nb", "a\x00b", "a\xe9"])
def test_a_password_that_no_header_can_have_is_refused(password: str, tmp_path: Path) -> None:
    with (
        store_at("memory", tmp_path) as store,
        FlightService(Broker(store, OpenGuard())) as service,  # takes any token
        flight.FlightClient(f"grpc://127.0.0.1:{service.port}") as client,
    ):
        with pytest.raises(flight.FlightUnauthenticatedError, match="Authorization: Basic"):
            client.authenticate_basic_token("anyone", password)
        assert client.authenticate_basic_token("anyone", "a b") == (b"authorization", b"Bearer a b")


def test_adbc_takes_a_user_name_and_a_password(served: FlightService) -> None:
    options = {"username": "anyone", "password": "narrow"}
    address = f"grpc://127.0.0.1:{served.port}"
    with adbc.connect(address, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM s.numbers")
        assert cursor.fetchall() == [(_ROWS,)]


@pytest.mark.slow
@pytest.mark.process
def test_the_jdbc_driver_lists_and_queries(served: FlightService) -> None:
    done = jdbc.run(jdbc.driver(), served.port, "anyone", "narrow")
    assert done.returncode == 0, done.stderr
    found = [line.partition(" ") for line in done.stdout.splitlines()]
    assert [rest for name, _, rest in found if name == "prepared"] == ["[a]", "[]"]
    told = {name: rest for name, _, rest in found}
    assert "narrow may not read private/names" in told.pop("hidden")
    assert "DELETE" in told.pop("change")
    assert told == {
        "product": "Anabranch",
        "catalogs": "[anabranch]",
        "schemas": "[s]",
        "tables": "[s|kinds|TABLE, s|numbers|TABLE]",
        "columns": "[n|BIGINT, name|VARCHAR, value|DOUBLE, price|DECIMAL, at|TIMESTAMP_WITH_TIMEZONE, tags|ARRAY]",
        "types": "[TABLE]",
        "primary": "[]",
        "imported": "[]",
        "exported": "[]",
        "cross": "[]",
        "rows": '[1|a|1.5|12.30|2026-01-02 03:04:05.678901|["x","y"], 2|null|null|null|null|null]',
        "prepared": "[]",
        "dialect": "[null]",
        "large": f"{_ROWS} {_ROWS * (_ROWS - 1) // 2}",
    }


@pytest.mark.slow
@pytest.mark.process
def test_the_jdbc_driver_learns_that_the_password_is_wrong(served: FlightService) -> None:
    done = jdbc.run(jdbc.driver(), served.port, "wide", "nobody")
    assert done.returncode != 0
    assert "unknown token" in done.stderr
