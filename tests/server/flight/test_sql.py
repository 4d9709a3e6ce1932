"""Flight SQL, by the ADBC driver that is also Go's, C's and R's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pytest
from pyarrow import flight

from anabranch.errors import PermissionDenied, Unauthenticated
from anabranch.query.sandbox import QueryLimits
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.store import Store
from anabranch.wire.commands import pack
from anabranch.wire.v1 import flight_sql_pb2 as sql
from tests.store.helpers import store_at

_ROWS = 200_000


class _TwoCallers(OpenGuard):
    """The token is the name of who calls, and `narrow` reads scope `s` alone."""

    def authenticate(self, *, token: str | None, certificate: str | None, peer: str) -> Principal:
        if token not in ("wide", "narrow"):
            raise Unauthenticated("unknown token")
        return Principal(token)

    def authorize(self, principal: Principal, operation: str, resource: str | None, *, verb: str = "") -> None:
        if not self.allows(principal, operation, resource):
            raise PermissionDenied(f"{principal.name} may not {operation} {resource}")

    def allows(self, principal: Principal, operation: str, resource: str | None) -> bool:
        return principal.name == "wide" or (resource is not None and resource.startswith("s/"))


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at("sqlite", tmp_path_factory.mktemp("sql")) as made:
        schema = pa.schema([("n", pa.int64()), ("name", pa.string())])
        made.streams.create("s/numbers", schema=schema)
        rows = pa.table({"n": list(range(_ROWS)), "name": ["x"] * _ROWS}, schema=schema)
        made.writer("s/numbers").write_batch(rows).result()
        made.scopes.create("private")
        made.streams.create("private/names", schema=schema)
        yield made


@pytest.fixture(scope="module")
def address(stocked: Store) -> Iterator[str]:
    query_limits = QueryLimits(memory_bytes=128 << 20, seconds=20)
    with FlightService(Broker(stocked, _TwoCallers()), query_limits=query_limits) as served:
        yield f"grpc://127.0.0.1:{served.port}"


def _connect(address: str, token: str) -> adbc.Connection:
    options = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
    return adbc.connect(address, db_kwargs=options, autocommit=True)


@pytest.fixture(scope="module")
def wide(address: str) -> Iterator[adbc.Connection]:
    with _connect(address, "wide") as connection:
        yield connection


@pytest.fixture(scope="module")
def narrow(address: str) -> Iterator[adbc.Connection]:
    with _connect(address, "narrow") as connection:
        yield connection


def _ask(connection: adbc.Connection, query: str, parameters: object = None) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetch_arrow_table()


def test_a_result_is_streamed_with_its_types(wide: adbc.Connection) -> None:
    found = _ask(wide, "SELECT n, name FROM s.numbers WHERE n >= 10 ORDER BY n")
    assert found.schema == pa.schema([("n", pa.int64()), ("name", pa.string())])
    assert found.column("n").to_pylist() == list(range(10, _ROWS))
    with wide.cursor() as cursor:
        cursor.execute("SELECT n FROM anabranch.s.numbers")
        assert next(iter(cursor.fetch_record_batch())).num_rows < _ROWS
    assert _ask(wide, "SELECT count(*) AS n FROM private.names").to_pylist() == [{"n": 0}]


def test_a_prepared_query_takes_parameters_again_and_again(wide: adbc.Connection) -> None:
    with wide.cursor() as cursor:
        for low, high in ((5, 7), (8, 9)):
            cursor.execute("SELECT n FROM s.numbers WHERE n >= ? AND n < $2 ORDER BY n", (low, high))
            assert [row[0] for row in cursor.fetchall()] == list(range(low, high))
    assert _ask(wide, "SELECT ? || name AS x FROM s.numbers LIMIT 1", ("a",)).to_pylist() == [{"x": "ax"}]
    with wide.cursor() as cursor:
        assert cursor.adbc_prepare("SELECT n FROM s.numbers WHERE name = ?") == pa.schema([("1", pa.string())])


def test_the_sql_of_a_connection_is_translated_by_its_header(address: str) -> None:
    def connect(dialect: str) -> adbc.Connection:
        header = {"adbc.flight.sql.rpc.call_header.anabranch-dialect": dialect}
        token = {"adbc.flight.sql.authorization_header": "Bearer narrow"}
        return adbc.connect(address, db_kwargs={**token, **header}, autocommit=True)

    with connect("bigquery") as connection:
        assert _ask(connection, "SELECT COUNTIF(n < 7) AS few FROM `s.numbers`").to_pylist() == [{"few": 7}]
        with connection.cursor() as cursor:  # a prepared one, with parameters
            cursor.execute("SELECT SAFE_CAST(name AS INT64) AS n FROM s.numbers WHERE n = ?", (3,))
            assert cursor.fetchall() == [(None,)]
        with pytest.raises(adbc_driver_manager.Error, match="line 2: the function unnest_all is not translated"):
            _ask(connection, "SELECT n,\n UNNEST_ALL(n) FROM s.numbers")
        with pytest.raises(adbc_driver_manager.Error, match="narrow may not read private/names"):
            _ask(connection, "SELECT COUNTIF(n < 7) FROM private.names")
    for unknown in ("oracle", ""):
        with connect(unknown) as connection, pytest.raises(adbc_driver_manager.Error, match="expected one of flink"):
            _ask(connection, "SELECT n FROM s.numbers")


def test_catalogs_schemas_tables_and_facts_are_listed(wide: adbc.Connection, narrow: adbc.Connection) -> None:
    def tables(connection: adbc.Connection, **options: Any) -> list[tuple[str, str, list[str]]]:
        found = connection.adbc_get_objects(depth="all", **options).read_all().to_pylist()
        return [
            (schema["db_schema_name"], table["table_name"], [each["column_name"] for each in table["table_columns"]])
            for catalog in found
            for schema in catalog["catalog_db_schemas"]
            for table in schema["db_schema_tables"] or ()
        ]

    numbers, names = ("s", "numbers", ["n", "name"]), ("private", "names", ["n", "name"])
    assert numbers in tables(wide) and names in tables(wide)
    assert tables(narrow) == [numbers]
    assert tables(wide, table_name_filter="num%") == [numbers]
    assert tables(wide, db_schema_filter="priv_te") == [names]
    assert tables(wide, catalog_filter="other") == []
    assert wide.adbc_get_table_types() == ["TABLE"]
    assert wide.adbc_get_table_schema("numbers", db_schema_filter="s").names == ["n", "name"]
    assert wide.adbc_get_info()["vendor_name"] == "Anabranch"
    assert {"name": "s.numbers"} in _ask(narrow, "SHOW TABLES").to_pylist()
    assert {"name": "private.names"} not in _ask(narrow, "SHOW TABLES").to_pylist()


@pytest.mark.parametrize("name", ["private.names", '"private/names"', "anabranch.private.names", "private.nothing"])
def test_who_may_not_read_a_stream_does_not_learn_whether_there_is_one(narrow: adbc.Connection, name: str) -> None:
    with pytest.raises(adbc_driver_manager.Error, match="narrow may not read private/n") as refused:
        _ask(narrow, f"SELECT count(*) FROM {name}")
    assert refused.value.status_code == adbc_driver_manager.AdbcStatusCode.UNAUTHORIZED
    assert _ask(narrow, "SELECT count(*) AS n FROM s.numbers").to_pylist() == [{"n": _ROWS}]


def test_unknown_callers_are_refused(address: str) -> None:
    with pytest.raises(adbc_driver_manager.Error, match="unknown token"), _connect(address, "nobody") as connection:
        _ask(connection, "SELECT 1")


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("SELEC 1", "did you mean SELECT"),
        ("FROM s.nope", "unknown stream or table 's.nope'"),
        ("FROM read_text('/etc/passwd')", "can't use files"),
        ("COPY s.numbers TO '/tmp/x'", "COPY is refused"),
        ("SET memory_limit = '1GB'", "SET is refused"),
        ("SELECT repeat('x', 2000000000)", "needs more memory"),
        (" ;", "empty"),
    ],
)
def test_a_bad_query_is_one_clear_error(wide: adbc.Connection, query: str, complaint: str) -> None:
    with pytest.raises(adbc_driver_manager.Error, match=complaint):
        _ask(wide, query)
    assert _ask(wide, "SELECT 1 AS a").to_pylist() == [{"a": 1}]


def test_a_query_is_cancelled_from_another_call(address: str) -> None:
    with flight.FlightClient(address) as client:
        options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer wide")])
        command = pack(sql.CommandStatementQuery(query="SELECT a.n + b.n AS x FROM s.numbers a, s.numbers b"))
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command), options)
        reader = client.do_get(info.endpoints[0].ticket, options)
        assert reader.read_chunk().data.num_rows > 0
        body = sql.ActionCancelQueryRequest(info=info.serialize()).SerializeToString()
        (answer,) = client.do_action(flight.Action("CancelFlightInfo", body), options)
        found = sql.ActionCancelQueryResult.FromString(answer.body.to_pybytes())
        assert found.result == sql.ActionCancelQueryResult.CANCEL_RESULT_CANCELLING
        with pytest.raises(flight.FlightError, match="closed"):
            reader.read_all()
        (answer,) = client.do_action(flight.Action("CancelFlightInfo", body), options)
        found = sql.ActionCancelQueryResult.FromString(answer.body.to_pybytes())
        assert found.result == sql.ActionCancelQueryResult.CANCEL_RESULT_NOT_CANCELLABLE


@pytest.mark.parametrize(
    "command",
    [
        b"",
        b"nonsense",
        pack(sql.TicketStatementQuery(statement_handle=b"nonsense")),
        pack(sql.TicketStatementQuery(statement_handle=b'{"id": 1, "sql": "SELECT 1", "parameters": ""}')),
        pack(sql.TicketStatementQuery(statement_handle=b'{"id": "a", "sql": "SELECT 1", "parameters": "AAAA"}')),
        pack(sql.CommandStatementUpdate(query="DELETE FROM s.numbers")),
        pack(sql.ActionCreatePreparedStatementRequest(query="SELECT 1")),
    ],
)
def test_commands_that_make_no_sense_are_refused(address: str, command: bytes) -> None:
    with flight.FlightClient(address) as client:
        options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer wide")])
        with pytest.raises((pa.ArrowInvalid, flight.FlightError)):
            client.get_flight_info(flight.FlightDescriptor.for_command(command), options)
        with pytest.raises((pa.ArrowInvalid, flight.FlightError)):
            client.do_get(flight.Ticket(command), options).read_all()
        for kind in ("CreatePreparedStatement", "ClosePreparedStatement", "CancelQuery", "CancelFlightInfo"):
            if kind != "CreatePreparedStatement" or b"CreatePrepared" not in command:
                with pytest.raises((pa.ArrowInvalid, flight.FlightError)):
                    list(client.do_action(flight.Action(kind, command or b"\xff"), options))


def test_pandas_reads_by_sql(wide: adbc.Connection) -> None:
    import pandas

    frame = pandas.read_sql("SELECT max(n) AS top FROM s.numbers", wide)
    assert frame.to_dict("records") == [{"top": _ROWS - 1}]
