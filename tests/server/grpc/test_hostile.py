"""Messages that are random, truncated, too large or of another kind: one clear error each, and the process goes on."""

from __future__ import annotations

import json
import random
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.wire.v1 import store_pb2 as v1
from tests.server.grpc.client import SERVICE, Client, error_of
from tests.server.kit import BrokerProcess
from tests.server.workers_of import children

pytestmark = pytest.mark.process

BAD = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
}


FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE}


def outcome(client: Client, name: str, *data: bytes, **more: Any) -> tuple[Any, str]:
    """The status and the code that bytes are answered with."""
    method = SERVICE.methods_by_name[name]
    try:
        found = client.raw(name)(iter(data) if method.client_streaming else data[0], **more)
        if method.server_streaming:
            list(found)
    except grpc.RpcError as exc:
        return exc.code(), error_of(exc).code
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("name", sorted(SERVICE.methods_by_name))
def test_random_and_truncated_messages_are_refused(broker: BrokerProcess, client: Client, name: str) -> None:
    before = children(broker.process.pid)
    chance = random.Random(7)
    good = v1.AppendRequest(stream="iot/none", events=[v1.Event(payload=b"x" * 50)]).SerializeToString()
    huge_length = b"\x0a\xff\xff\xff\xff\x0f" + b"x"
    for data in [*(chance.randbytes(size) for size in (1, 7, 100, 5_000)), b"", huge_length, good[:-3], b"\xff" * 20]:
        status, code = outcome(client, name, data)
        assert status in BAD, (name, data[:20], status)
        assert code, (name, data[:20])
    assert children(broker.process.pid) == before, "the process is still the same"


def test_a_message_over_the_limit_is_refused_before_it_is_read(client: Client) -> None:
    status, _ = outcome(client, "Append", b"x" * (1 << 21))
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert outcome(client, "Read", b"")[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_events_of_no_kind_and_of_a_wrong_one_are_refused(client: Client) -> None:
    list(client.Call(v1.CallRequest(verb="streams.create", arguments=b'{"name": "iot/hostile"}')))
    number = v1.ProducerNumber(id="p", sequence=-1)
    for event in (v1.Event(), v1.Event(json=b"{"), v1.Event(json=b"[" * 5_000), v1.Event(json=b"1", key="k")):
        request = v1.AppendRequest(stream="iot/hostile", events=[event])
        assert outcome(client, "Append", request.SerializeToString())[0] is grpc.StatusCode.INVALID_ARGUMENT
    many = v1.AppendRequest(stream="iot/hostile", events=[v1.Event(payload=b"good"), v1.Event(json=b"{}")])
    assert outcome(client, "Append", many.SerializeToString())[1] == "schema_mismatch"
    for request in (
        v1.AppendRequest(stream="iot/hostile"),
        v1.AppendRequest(stream="iot/hostile", events=[v1.Event(payload=b"x")], producer=number),
    ):
        assert outcome(client, "Append", request.SerializeToString())[1] == "invalid_argument"
    assert not [event for part in client.Read(v1.ReadRequest(stream="iot/hostile")) for event in part.events]


def test_an_unknown_rpc_is_unimplemented(client: Client) -> None:
    call: Any = client.channel.unary_unary("/anabranch.v1.Store/Conjure")
    with pytest.raises(grpc.RpcError) as found:
        call(b"", timeout=30)
    assert found.value.code() is grpc.StatusCode.UNIMPLEMENTED


_SESSIONS = {"ReadGroup": v1.ReadGroupRequest, "Transact": v1.TransactRequest}
_TEXT = st.sampled_from(["", "iot/sessions", "iot/session-readers", "a b", "r", "x" * 3_000, "\x00"])
_NUMBER = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 2)


def _messages(kind: Any, depth: int = 3) -> st.SearchStrategy[Any]:
    """Messages of a kind, any of whose fields are set, to values that make sense and to ones that don't."""
    values: dict[str, st.SearchStrategy[Any]] = {}
    for field in kind.DESCRIPTOR.fields:
        if field.message_type is not None and not depth:
            continue
        value = _value(field, depth)
        values[field.name] = st.lists(value, max_size=2) if field.is_repeated else value
    chosen = st.lists(st.sampled_from(sorted(values)), max_size=3, unique=True) if values else st.just([])
    return chosen.flatmap(
        lambda names: st.fixed_dictionaries({name: values[name] for name in names}).map(lambda given: kind(**given))
    )


def _value(field: Any, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return _messages(GetMessageClass(field.message_type), depth - 1)
    match field.cpp_type:
        case field.CPPTYPE_STRING:
            return st.binary(max_size=20) if field.type == field.TYPE_BYTES else _TEXT
        case field.CPPTYPE_BOOL:
            return st.booleans()
    return _NUMBER


@pytest.mark.parametrize("name", sorted(_SESSIONS))
def test_requests_in_any_order_end_with_one_status(broker: BrokerProcess, client: Client, name: str) -> None:
    before = children(broker.process.pid)
    for verb, arguments in (
        ("streams.create", {"name": "iot/sessions", "exist_ok": True}),
        ("group.open", {"group": "iot/session-readers", "streams": ["iot/sessions"], "end": "tail"}),
    ):
        list(client.Call(v1.CallRequest(verb=verb, arguments=json.dumps(arguments).encode())))
    kind = _SESSIONS[name]
    group = v1.OpenGroupReader(group="iot/session-readers", reader="r", delivery="exactly_once")
    opened = v1.ReadGroupRequest(open=group) if name == "ReadGroup" else v1.TransactRequest(open=v1.OpenTransaction())

    @settings(max_examples=60, deadline=None)
    @given(requests=st.lists(_messages(kind), max_size=5), cut=st.none() | st.integers(1, 30), begun=st.booleans())
    def ends(requests: list[Any], cut: int | None, begun: bool) -> None:
        sent = [each.SerializeToString() for each in ([opened] if begun else []) + requests]
        if cut is not None and sent:
            sent[-1] = sent[-1][:cut]
        status, code = outcome(client, name, *sent, timeout=5)
        assert status not in FAULTS, (status, code)
        assert code or status in (grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED)  # it waits for events

    ends()
    assert children(broker.process.pid) == before, "the process is still the same"
