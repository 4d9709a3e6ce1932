"""Compiles the `.proto` files of the package: `python -m tests.wire.generate`."""

from __future__ import annotations

import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc  # type: ignore[import-untyped]

SOURCE = Path(__file__).parents[2] / "src"
PROTOS = (
    "anabranch/wire/v1/anabranch.proto",
    "anabranch/wire/v1/flight_sql.proto",
    "anabranch/wire/v1/store.proto",
)
DESCRIPTORS = Path(__file__).parent / "released.binpb"  # what no change may break
_CODES = {".py": "I001", ".pyi": "A002, I001, RUF023, RUF100, UP007, UP045"}
_HEADER = '# ruff: noqa: {codes}\n# fmt: off\n# mypy: disable-error-code="type-arg"\n'


def generate(target: Path) -> list[Path]:
    """Write the generated modules below `target`, as below `src`. Returns their paths within it."""
    arguments = [f"-I{SOURCE}", f"--python_out={target}", f"--pyi_out={target}", *PROTOS]
    if protoc.main(["protoc", *arguments]):
        raise SystemExit("protoc failed")
    made = [Path(proto.removesuffix(".proto") + end) for proto in PROTOS for end in ("_pb2.py", "_pb2.pyi")]
    for path in made:
        text = (target / path).read_text()
        (target / path).write_text(_HEADER.format(codes=_CODES[path.suffix]) + text)
    return made


def described(target: Path) -> FileDescriptorSet:
    """The messages as they are now; `target` is a folder for the compiler's output."""
    out = target / "now.binpb"
    if protoc.main(["protoc", f"-I{SOURCE}", f"--descriptor_set_out={out}", *PROTOS]):
        raise SystemExit("protoc failed")
    return FileDescriptorSet.FromString(out.read_bytes())


if __name__ == "__main__":
    generate(SOURCE)
    if "--release" in sys.argv:  # after a release: from now on its messages are fixed
        DESCRIPTORS.write_bytes(described(Path(sys.argv[-1])).SerializeToString())
