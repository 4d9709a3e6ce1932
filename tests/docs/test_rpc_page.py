"""The page of a broker's calls is complete: all that the protocol and the table of verbs have is on it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from google.protobuf.descriptor import Descriptor, FileDescriptor

from anabranch.wire.v1 import anabranch_pb2, flight_sql_pb2, store_pb2
from anabranch.wire.verbs import VERBS
from docs import rpc_page

DESCRIPTORS = {
    "anabranch.proto": anabranch_pb2.DESCRIPTOR,
    "flight_sql.proto": flight_sql_pb2.DESCRIPTOR,
    "store.proto": store_pb2.DESCRIPTOR,
}


@pytest.fixture(scope="module")
def page() -> str:
    return rpc_page.page()


def fields(messages: Mapping[str, Descriptor], outer: str = "") -> dict[str, set[str]]:
    found = {}
    for name, message in messages.items():
        if message.GetOptions().map_entry:
            continue
        found[outer + name] = {field.name for field in message.fields}
        for kind, values in message.enum_types_by_name.items():
            found[f"{outer}{name}.{kind}"] = set(values.values_by_name)
        found |= fields(message.nested_types_by_name, f"{outer}{name}.")
    return found


@pytest.mark.parametrize("name", rpc_page.PROTOS)
def test_every_message_field_and_call_of_the_protocol_is_found(name: str) -> None:
    file: FileDescriptor = DESCRIPTORS[name]
    proto = rpc_page.parsed(name)
    assert {each.name: {field[0] for field in each.fields} for each in proto.messages} == fields(
        file.message_types_by_name
    )
    calls = {call.name for service in file.services_by_name.values() for call in service.methods}
    assert {call[0] for call in proto.calls} == calls
    assert all(said for *_, said in proto.calls)


def test_every_verb_is_on_the_page_with_what_it_needs(page: str) -> None:
    rows = {
        row.split("`")[1]: row.split(" | ")
        for row in page.partition("## gRPC")[0].splitlines()
        if row.startswith("| `")
    }
    for name, verb in VERBS.items():
        _, arguments, result, right, idempotent = rows[name]
        for argument in verb.parameters:
            assert argument in ("progress", "started") or f"`{argument}`: " in arguments, name
        assert result and right != "none", name
        assert "\\|" not in arguments, f"{name}: a type is shown as Python has it"
        assert idempotent.startswith("no") != verb.repeatable, name


@pytest.mark.parametrize(
    ("verb", "right"),
    [
        ("streams.copy", "`read` of `source`; `create` of `target`"),
        ("compact", "`admin` of the store<br>with `stream`: `manage` of `stream`"),
        ("streams.list", "*listed*"),
        ("backup", "`admin` of the store; `place` below `allowed_places`"),
        ("jobs.get", "`read` of the target of `job`"),
        ("revisioned.open", "`create` of `name`; `read` of `name`<br>with `create` = false: only `read` of `name`"),
    ],
)
def test_rights_are_those_of_the_table(verb: str, right: str) -> None:
    assert rpc_page.rights(VERBS[verb]) == right


def test_the_page_shows_no_object_of_this_process(page: str) -> None:
    assert not re.search(r"0x[0-9a-f]{6}|<function|<class|typing\.", page)
