"""Every RPC of the gRPC service × every caller, over real connections. The RPCs are those of the service's descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from anabranch.server.broker import Broker
from anabranch.server.config import load
from anabranch.server.counters import Counters
from anabranch.server.grpc.front_end import GrpcFrontEnd
from anabranch.server.grpc.service import METHODS, SERVICE
from anabranch.wire.v1 import store_pb2 as v1
from tests.server.access.credentials import KNOWN, LETTERS, STRANGERS, World, may, world
from tests.server.grpc.client import Client

# What each RPC needs on the stream; None: what it is asked for decides. A new one has to be added here.
NEEDS = {
    "Append": "w",
    "AppendStream": "w",
    "Read": "r",
    "Follow": "r",
    "Call": None,
    "ReadGroup": "w",
    "Transact": "w",  # of a group its positions are written; its streams are read as well
}

# The group in `iot` that reads the stream; one that reads what its caller may not read is of no use to him.
GROUPS = {"iot/sensors": "iot/readers", "iot/window": "iot/readers-of-secret"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, dict[str, Client]]]:
    with world(tmp_path_factory.mktemp("grpc")) as made:
        for stream, group in GROUPS.items():
            made.store.groups.open(group, streams={"iot/window": "lab/secret"}.get(stream, stream))
        front_end = GrpcFrontEnd(
            Broker(made.store, made.guard), load({"grpc_port": 0}, environment={}).settings, Counters(slots=2, slot=1)
        )
        address = front_end.start()
        clients = {who: Client(address, token) for who, token in made.tokens.items()}
        try:
            yield made, clients
        finally:
            for client in clients.values():
                client.channel.close()
            assert front_end.drain(10)
            front_end.stop()


def passes(served: tuple[World, dict[str, Client]], caller: str, name: str, stream: str = "iot/sensors") -> Any:
    """True if the call is allowed, whether it succeeds or not."""
    method = SERVICE.methods_by_name[name]
    request: Any = GetMessageClass(method.input_type)()
    requests = [request]
    if name == "AppendStream":
        request.append.stream = stream
    elif name == "ReadGroup":
        request.open.CopyFrom(v1.OpenGroupReader(group=GROUPS.get(stream, stream), reader=f"r-{caller}"))
        requests.append(v1.ReadGroupRequest(leave=v1.LeaveGroup()))
    elif name == "Transact":
        request.open.SetInParent()
        write = v1.TransactionWrite(stream=stream, events=[v1.Event(payload=b"x")])
        requests += [v1.TransactRequest(write=write), v1.TransactRequest(abort=v1.TransactionAbort())]
    elif "stream" in method.input_type.fields_by_name:
        request.stream = stream
    given = iter(requests) if method.client_streaming else request
    try:
        found = getattr(served[1][caller], name)(given)
        if method.server_streaming:
            if method.client_streaming:
                list(found)
            else:
                next(found, None)  # a follower has no end
                found.cancel()
    except grpc.RpcError as exc:
        code = exc.code()
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return "unauthenticated"
        return code is not grpc.StatusCode.PERMISSION_DENIED
    return True


def test_every_rpc_of_the_descriptor_is_served_and_says_what_it_needs() -> None:
    assert METHODS.keys() == NEEDS.keys() == set(SERVICE.methods_by_name)
    for name, method in METHODS.items():
        assert method.operation is None or LETTERS[method.operation] == NEEDS[name], name


@pytest.mark.parametrize("name", sorted(SERVICE.methods_by_name))
def test_strangers_are_let_in_nowhere(served: tuple[World, dict[str, Client]], name: str) -> None:
    assert {who: passes(served, who, name) for who in STRANGERS} == dict.fromkeys(STRANGERS, "unauthenticated")


@pytest.mark.parametrize("name", [name for name, needs in NEEDS.items() if needs])
def test_a_caller_may_do_what_his_role_allows_where_he_has_it(
    served: tuple[World, dict[str, Client]], name: str
) -> None:
    letter = NEEDS[name]
    assert letter is not None
    assert {who: passes(served, who, name) for who in KNOWN} == {who: may(who, letter) for who in KNOWN}
    for stream in ("iot/window", "_store/audit", "lab/nothing", "none/nothing"):
        assert passes(served, "admin on iot/", name, stream) is False, stream


def test_verbs_are_checked_by_the_door_that_all_front_ends_share(served: tuple[World, dict[str, Client]]) -> None:
    def call(caller: str) -> Any:
        try:
            return len(
                list(served[1][caller].Call(v1.CallRequest(verb="streams.seal", arguments=b'{"name":"lab/secret"}')))
            )
        except grpc.RpcError as exc:
            return exc.code()

    assert call("admin on iot/") is grpc.StatusCode.PERMISSION_DENIED
    assert call("writer on lab/") is grpc.StatusCode.PERMISSION_DENIED
    assert call("operator on lab/") == 1
