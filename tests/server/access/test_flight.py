"""Every method of the Flight server × every caller, over real connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.wire.commands import pack
from anabranch.wire.v1 import anabranch_pb2 as v1
from tests.server.access.credentials import KNOWN, STRANGERS, World, may, may_read, world

Options = flight.FlightCallOptions


def read(client: Any, options: Any, stream: str) -> None:
    client.do_get(flight.Ticket(pack(v1.ReadCommand(stream=stream))), options).read_all()


def read_range(client: Any, options: Any, stream: str) -> None:
    command = v1.RangeReadCommand(stream_id=IDS.get(stream, 7))
    client.do_get(flight.Ticket(pack(command)), options).read_all()


def read_bytes(client: Any, options: Any, stream: str) -> None:
    command = v1.ByteReadCommand(stream_id=IDS.get(stream, 7))
    client.do_get(flight.Ticket(pack(command)), options).read_all()


def append(client: Any, options: Any, stream: str, **fields: Any) -> None:
    command = flight.FlightDescriptor.for_command(pack(v1.AppendCommand(stream=stream, **fields)))
    writer, answers = client.do_put(command, pa.schema([("payload", pa.binary())]), options)
    with writer:
        answer = v1.AppendOpened.FromString(answers.read().to_pybytes())
        if answer.error:
            raise flight.FlightUnauthorizedError(answer.error)


def describe(client: Any, options: Any, stream: str) -> None:
    client.get_flight_info(flight.FlightDescriptor.for_path(*stream.split("/")), options)


def schema(client: Any, options: Any, stream: str) -> None:
    client.get_schema(flight.FlightDescriptor.for_path(*stream.split("/")), options)


def exchange(client: Any, options: Any, stream: str) -> None:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b""), options)
    with writer:
        reader.read_chunk()


IDS: dict[str, int] = {}  # of the streams


# Each method with what it needs on the stream; None: what it is asked for decides, or it shows what the caller may read.
METHODS: dict[str, tuple[Callable[[Any, Any, str], Any], str | None]] = {
    "do_get": (read, "r"),
    "do_get of a range": (read_range, "r"),
    "do_get of bytes": (read_bytes, "r"),
    "do_put": (append, "w"),
    "do_put of bytes": (partial(append, byte_fence=1 << 60), "w"),
    "get_flight_info": (describe, "r"),
    "get_schema": (schema, "r"),
    "list_flights": (lambda client, options, _: list(client.list_flights(b"", options)), None),
    "list_actions": (lambda client, options, _: client.list_actions(options), None),
    "do_action": (lambda client, options, _: list(client.do_action(flight.Action("nothing", b""), options)), None),
    "do_exchange": (exchange, None),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Any]]:
    with (
        world(tmp_path_factory.mktemp("flight")) as made,
        FlightService(Broker(made.store, made.guard)) as service,
        flight.FlightClient(f"grpc://127.0.0.1:{service.port}") as client,
    ):
        IDS.update({str(each.name): each.id for each in made.store.streams.list()})
        IDS["iot/window"] = IDS["lab/secret"]
        yield made, client


def passes(served: tuple[World, Any], caller: str, method: str, stream: str = "iot/sensors") -> bool | str:
    """True if the call is allowed, whether it succeeds or not."""
    token = served[0].tokens[caller]
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    try:
        METHODS[method][0](served[1], Options(headers=headers), stream)
    except flight.FlightUnauthenticatedError:
        return "unauthenticated"
    except flight.FlightUnauthorizedError:
        return False
    except pa.ArrowException as exc:  # of get_schema alone, pyarrow passes errors on as their text
        text = str(exc)
        if method == "get_schema" and "may not" in text:
            return False
        return "unauthenticated" if method == "get_schema" and "token" in text else True
    return True


def test_every_method_of_the_server_is_in_the_matrix() -> None:
    own = {name for name in vars(FlightService) if not name.startswith("_") and hasattr(flight.FlightServerBase, name)}
    assert own == {each.partition(" ")[0] for each in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_strangers_are_let_in_nowhere(served: tuple[World, Any], method: str) -> None:
    assert {who: passes(served, who, method) for who in STRANGERS} == dict.fromkeys(STRANGERS, "unauthenticated")


def test_a_handshake_by_password_lets_in_whom_a_token_does(served: tuple[World, Any]) -> None:
    def shakes(caller: str) -> bool:
        try:
            served[1].authenticate_basic_token("admin", served[0].tokens[caller] or "")
        except flight.FlightUnauthenticatedError:
            return False
        return True

    assert {who: shakes(who) for who in (*STRANGERS, *KNOWN)} == dict.fromkeys(STRANGERS, False) | dict.fromkeys(
        KNOWN, True
    )


@pytest.mark.parametrize("method", [name for name, (_, needs) in METHODS.items() if needs])
def test_a_caller_may_do_what_his_role_allows_where_he_has_it(served: tuple[World, Any], method: str) -> None:
    needs = METHODS[method][1]
    assert needs is not None
    assert {who: passes(served, who, method) for who in KNOWN} == {who: may(who, needs) for who in KNOWN}
    for stream in ("iot/window", "_store/audit", "lab/nothing", "none/nothing"):
        assert passes(served, "admin on iot/", method, stream) is False, stream


def test_lists_show_what_the_caller_may_read(served: tuple[World, Any]) -> None:
    for caller in KNOWN:
        options = Options(headers=[(b"authorization", f"Bearer {served[0].tokens[caller]}".encode())])
        found = {b"/".join(each.descriptor.path).decode() for each in served[1].list_flights(b"", options)}
        assert found == {name for name in ("iot/sensors", "iot/done", "lab/secret") if may_read(caller, name)}, caller
