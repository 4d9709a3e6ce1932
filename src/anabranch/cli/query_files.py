"""The files of a query on the command line: wheels, WebAssembly modules, resources and a signature."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch import limits
from anabranch.cli.declare import option
from anabranch.cli.input_files import read_bytes, read_module, read_text
from anabranch.errors import InvalidArgument

SIGNATURE_OPTION: Final = option("--signature", "FILE", "The signature that `queries sign` has written.")


@dataclass(frozen=True)
class QueryFileOptions:
    """The files whose functions the statements of a query call."""

    wheels: list[Path] | None = option(
        "--wheel",
        "FILE.whl",
        "A pure wheel of Python code, whose functions the statements call; may be given several times.",
    )
    modules: list[Path] | None = option(
        "--wasm", "FILE", "A WebAssembly module with functions, FILE.wasm or FILE.wat; may be given several times."
    )
    resources: list[Path] | None = option(
        "--resource", "FILE", "A file that those functions read, such as a model; may be given several times."
    )

    def read(self) -> dict[str, bytes] | None:
        """The contents of the files by their names; None if there are none. Raises InvalidArgument."""
        from anabranch.deployments.files import kind_of_file

        found: dict[str, bytes] = {}
        count = sum(len(each or ()) for each in (self.wheels, self.modules, self.resources))
        if count > limits.DEPLOYMENT_FILES_MAX:
            raise InvalidArgument(f"expected at most {limits.DEPLOYMENT_FILES_MAX} files, got {count:,}")

        def add(name: str, content: bytes) -> None:
            if found.setdefault(name, content) is not content:
                raise InvalidArgument(f"two files are called '{name}': rename one of them")

        def read(path: Path) -> bytes:
            left = limits.DEPLOYMENT_FILES_BYTES_MAX - sum(map(len, found.values()))
            return read_bytes(path, what="the file", bytes_max=left)

        for path in self.wheels or ():
            if kind_of_file(path.name) != "wheel":
                raise InvalidArgument(f"expected --wheel with the path of a wheel, ….whl, got '{path}'")
            add(path.name, read(path))
        for path in self.modules or ():
            add(f"{path.stem}.wasm", read_module(path))
        for path in self.resources or ():
            if kind_of_file(path.name) != "resource":
                raise InvalidArgument(f"'{path}' is not a resource: pass it with --{kind_of_file(path.name)}")
            add(path.name, read(path))
        return found or None


def read_signature(path: Path | None) -> str | None:
    """The text of a signature. Raises InvalidArgument."""
    if path is None:
        return None
    return read_text(path, what="the signature", bytes_max=limits.SIGNATURE_FILE_BYTES_MAX).strip()
