"""The committed generated code is that of the `.proto` files, and no change of these breaks a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

from tests.wire.generate import DESCRIPTORS, SOURCE, described, generate


def test_the_generated_code_is_that_of_the_protos(tmp_path: Path) -> None:
    for path in generate(tmp_path):
        assert (SOURCE / path).read_text() == (tmp_path / path).read_text(), "run: python -m tests.wire.generate"


def test_no_change_of_a_proto_breaks_a_client(tmp_path: Path) -> None:
    assert list(breaking(FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()), described(tmp_path))) == []


def test_a_renumbered_a_retyped_and_a_removed_field_break_clients() -> None:
    def made(*fields: tuple[str, int, FieldDescriptorProto.Type.ValueType]) -> FileDescriptorSet:
        found = FileDescriptorSet()
        message = found.file.add(package="p").message_type.add(name="M")
        for name, number, kind in fields:
            message.field.add(name=name, number=number, type=kind)
        return found

    text, number = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_INT64
    before = made(("a", 1, text))
    assert list(breaking(before, made(("a", 1, text), ("b", 2, text)))) == []
    assert list(breaking(before, made(("a", 2, text)))) == ["p.M.a, number 1, is gone"]
    assert list(breaking(before, made(("a", 1, number)))) == ["p.M.a has another type"]
    assert list(breaking(before, made(("b", 1, text)))) == ["p.M.a is now called b"]
    assert list(breaking(before, FileDescriptorSet())) == ["p.M is gone"]


def breaking(before: FileDescriptorSet, now: FileDescriptorSet) -> Iterator[str]:
    """What a client of `before` can't cope with."""
    kept = dict(_messages(now))
    for name, message in _messages(before):
        if name not in kept:
            yield f"{name} is gone"
            continue
        fields = {field.number: field for field in kept[name].field}
        for field in message.field:
            found = fields.get(field.number)
            if found is None:
                yield f"{name}.{field.name}, number {field.number}, is gone"
            elif found.name != field.name:
                yield f"{name}.{field.name} is now called {found.name}"
            elif (found.type, found.type_name, found.label) != (field.type, field.type_name, field.label):
                yield f"{name}.{field.name} has another type"


def _messages(files: FileDescriptorSet) -> Iterator[tuple[str, DescriptorProto]]:
    for file in files.file:
        for message in file.message_type:
            yield f"{file.package}.{message.name}", message
