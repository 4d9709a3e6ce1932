"""The arguments and options of verbs that take a file of CREATE STREAM statements: `pipeline run`, `queries deploy` …"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch import limits
from anabranch.cli.confirm import confirm
from anabranch.cli.declare import argument, flag, option
from anabranch.cli.input_files import read_bytes, read_module, read_text
from anabranch.cli.translate import DIALECT_OPTION
from anabranch.core.pairs import parse_pairs
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.reading.bounds import Place
    from anabranch.store import Store

FILE_ARGUMENT: Final = argument("FILE.sql", "The statements.")
PARAM_OPTION: Final = option("--param", "NAME=VALUE", "A parameter that the file declares; may be given several times.")
START_FROM_OPTION: Final = option(
    "--from", "PLACE", "Start over from here: head, tail, a time, -15m, or a cut (one per source)."
)
START_BY_OPTION: Final = option("--by", "append|event", "The kind of time of --from.", default="append")
REPLACE_OPTION: Final = flag("--replace", "With --from: drop the earlier results.")
DROP_RESULTS_OPTION: Final = flag("--drop-results", "Delete its result streams too, if it made them.")


def read_statements(file: Path) -> str:
    """Returns the text of a file of statements, which is UTF-8; `-` is stdin. Raises InvalidArgument."""
    return read_text(file, what="the file of statements", bytes_max=limits.DEPLOYMENT_TEXT_BYTES_MAX)


def translated_statements(file: Path, dialect: str | None) -> str:
    """Returns the text of a file of statements, translated if it is in a `dialect`. Raises InvalidArgument, InvalidSql."""
    text = read_statements(file)
    if dialect is None:
        return text
    from anabranch.query.dialects.translate import translate

    return translate(text, dialect, "pipeline")


@dataclass(frozen=True)
class StatementFileOptions:
    """A file of statements, or a template, and the values of its parameters."""

    file: Path | None = argument("[FILE.sql]", "The statements; or pass --template.", default=None)
    template: str | None = option("--template", "NAME", "Use the statements of this template; see `queries templates`.")
    dialect: str | None = DIALECT_OPTION
    param: list[str] | None = PARAM_OPTION

    def text(self, store: Store) -> str:
        """The text of the file, translated if it is in a dialect, or of the template. Raises InvalidArgument, InvalidSql,
        TemplateNotFound."""
        if (self.file is None) == (self.template is None):
            raise InvalidArgument("pass either a file of statements or --template")
        if self.file is not None:
            return translated_statements(self.file, self.dialect)
        if self.dialect is not None:
            raise InvalidArgument("--dialect is that of a file of statements; a template has none")
        return store.templates.get(str(self.template)).text

    @property
    def parameters(self) -> dict[str, str]:
        """The values of the parameters. Raises InvalidArgument."""
        return parse_pairs(self.param, "a parameter")


def parse_starts(store: Store, texts: Sequence[str] | None) -> list[Place] | None:
    """Returns the positions that the texts of --from name, one per source; None without the option."""
    from anabranch.cli.stream_places import parse_place

    now = store.runtime.clock.now()
    return [parse_place(text, now=now) for text in texts] if texts else None


def confirm_replace(kind: str, name: str, starts: Sequence[str] | None, *, replace: bool, yes: bool) -> None:
    """Ask before earlier results are dropped; `kind` is "query" or "pipeline"."""
    if replace and starts:
        confirm(f"Drop the earlier results of {kind} '{name}'?", yes=yes)


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
