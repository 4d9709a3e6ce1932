"""Every command and action of Flight SQL × every caller, over real connections. The commands are those of the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from pyarrow import flight

from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.server.flight.sql.service import ACTIONS
from anabranch.wire.commands import pack
from anabranch.wire.v1 import flight_sql_pb2 as sql
from tests.server.access.credentials import KNOWN, STRANGERS, World, may, may_read, world

COMMANDS = sorted(name for name in sql.DESCRIPTOR.message_types_by_name if name.startswith("Command"))
# What shows streams or reads them; of the others, some say the same to everybody, and two are refused to everybody.
SHOWS = {"CommandGetDbSchemas", "CommandGetTables"}
READS = {"CommandStatementQuery", "CommandPreparedStatementQuery"}
REFUSED = {"CommandStatementUpdate", "CommandPreparedStatementUpdate"}
QUERY = "SELECT count(*) AS n FROM iot.sensors"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Any]]:
    with (
        world(tmp_path_factory.mktemp("sql")) as made,
        FlightService(Broker(made.store, made.guard)) as service,
        flight.FlightClient(f"grpc://127.0.0.1:{service.port}") as client,
    ):
        yield made, client


def options_of(served: tuple[World, Any], caller: str) -> Any:
    token = served[0].tokens[caller]
    return flight.FlightCallOptions(headers=[] if token is None else [(b"authorization", f"Bearer {token}".encode())])


def ask(served: tuple[World, Any], caller: str, command: Message) -> pa.Table | str:
    """The answer to a command, or why there is none."""
    client, options = served[1], options_of(served, caller)
    try:
        found = client.get_flight_info(flight.FlightDescriptor.for_command(pack(command)), options)
        return client.do_get(found.endpoints[0].ticket, options).read_all()
    except flight.FlightUnauthenticatedError:
        return "unauthenticated"
    except flight.FlightUnauthorizedError:
        return "denied"
    except pa.ArrowException as exc:
        return str(exc)


def prepared(served: tuple[World, Any], caller: str, query: str) -> Message | str:
    """The command for a prepared query, or why there is none."""
    packed = Packed()
    packed.Pack(sql.ActionCreatePreparedStatementRequest(query=query))
    action = flight.Action("CreatePreparedStatement", packed.SerializeToString())
    try:
        (result,) = served[1].do_action(action, options_of(served, caller))
    except flight.FlightUnauthenticatedError:
        return "unauthenticated"
    except flight.FlightUnauthorizedError:
        return "denied"
    packed = Packed.FromString(result.body.to_pybytes())
    made = sql.ActionCreatePreparedStatementResult()
    assert packed.Unpack(made)
    return sql.CommandPreparedStatementQuery(prepared_statement_handle=made.prepared_statement_handle)


def command_of(served: tuple[World, Any], name: str) -> Message:
    if name == "CommandPreparedStatementQuery":
        found = prepared(served, "admin on *", QUERY)
        assert isinstance(found, Message)
        return found
    made: Message = GetMessageClass(sql.DESCRIPTOR.message_types_by_name[name])()
    if name == "CommandStatementQuery":
        made.query = QUERY  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("name", COMMANDS)
def test_strangers_get_no_answer_to_any_command(served: tuple[World, Any], name: str) -> None:
    command = command_of(served, name)
    assert {who: ask(served, who, command) for who in STRANGERS} == dict.fromkeys(STRANGERS, "unauthenticated")


@pytest.mark.parametrize("kind", [kind for kind, _ in ACTIONS])
def test_strangers_get_no_answer_to_any_action(served: tuple[World, Any], kind: str) -> None:
    for who in STRANGERS:
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(served[1].do_action(flight.Action(kind, b""), options_of(served, who)))


@pytest.mark.parametrize("name", [each for each in COMMANDS if each not in SHOWS | READS])
def test_what_does_not_name_streams_is_the_same_for_all(served: tuple[World, Any], name: str) -> None:
    answers = [ask(served, who, command_of(served, name)) for who in KNOWN]
    assert all(isinstance(each, str) == (name in REFUSED) for each in answers)
    assert all(each == answers[0] for each in answers)


def test_lists_show_what_the_caller_may_read(served: tuple[World, Any]) -> None:
    names = (("iot", "sensors"), ("iot", "done"), ("lab", "secret"))
    for caller in KNOWN:
        expected = {each for each in names if may_read(caller, "/".join(each))}
        tables = ask(served, caller, sql.CommandGetTables())
        assert isinstance(tables, pa.Table)
        found = zip(tables["db_schema_name"].to_pylist(), tables["table_name"].to_pylist(), strict=True)
        assert {each for each in found if not each[0].startswith("_")} == expected, caller
        scopes = ask(served, caller, sql.CommandGetDbSchemas())
        assert isinstance(scopes, pa.Table)
        shown = {each for each in scopes["db_schema_name"].to_pylist() if not each.startswith("_")}
        assert shown == {scope for scope, _ in expected}, caller


@pytest.mark.parametrize("name", sorted(READS))
def test_a_query_reads_what_its_caller_may_read(served: tuple[World, Any], name: str) -> None:
    command = command_of(served, name)  # a handle of one caller gives another one nothing
    for caller in KNOWN:
        found = ask(served, caller, command)
        assert (found if isinstance(found, str) else found.to_pylist()) == (
            [{"n": 0}] if may(caller, "r") else "denied"
        ), caller
        assert isinstance(prepared(served, caller, QUERY), Message) == may(caller, "r"), caller
    for table in ("iot.window", "_store.audit", "lab.nothing", "none.nothing"):
        query = sql.CommandStatementQuery(
            query=f"SELECT * FROM {table.replace('_store', chr(34) + '_store' + chr(34))}"
        )
        assert ask(served, "admin on iot/", query) == "denied", table
