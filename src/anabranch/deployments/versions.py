"""New versions of queries: their texts and values checked, made with those of the current version, and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.catalog.state.query_question import UpgradePlan
from anabranch.catalog.state.query_version import QueryFile, QueryVersion
from anabranch.core.sql_parameters import bind, declarations
from anabranch.core.sql_text import check_sql_text
from anabranch.deployments.files import check_files, put_contents
from anabranch.deployments.record import put_version
from anabranch.deployments.signatures import check_signed, signed_message
from anabranch.errors import InvalidArgument, InvalidSql, TooLarge
from anabranch.model.amounts import to_duration
from anabranch.model.ids import Micros

__all__ = ["VersionContent", "check_parameters", "check_statements", "check_upgrade", "check_values", "put_new"]


@dataclass(frozen=True, slots=True)
class VersionContent:
    """What makes a version. None stands for the value of the current version."""

    text: str | None
    parameters: Mapping[str, str] | None
    trigger_us: int | None
    files: tuple[QueryFile, ...] | None
    signature: str | None

    @classmethod
    def checked(
        cls,
        text: str | None,
        parameters: Mapping[str, str] | None,
        trigger: timedelta | int | str | None,
        files: Mapping[str, bytes] | None,
        signature: str | None,
    ) -> VersionContent:
        """From what comes from outside, with a text that is checked. Raises InvalidArgument, TooLarge."""
        return cls(
            text,
            None if parameters is None else check_values(parameters),
            None if trigger is None else to_duration(trigger),
            None if files is None else check_files(files),
            signature,
        )

    @property
    def digest(self) -> str:
        """The SHA-256, in hex."""
        listed = None if self.files is None else {file.name: file.digest for file in self.files}
        parts = [self.text, self.parameters, self.trigger_us, listed, self.signature]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def version(self, name: str, number: int, now: Micros, current: QueryVersion | None = None) -> QueryVersion:
        """The version with this content, and with the values of `current` for those that are None. The signature of
        `current` stays valid if nothing signed differs. Raises InvalidSql if its parameters are not those that its
        statements declare."""
        found = self if current is None else self._completed(current)
        text, parameters, trigger_us, files = found.text, found.parameters, found.trigger_us, found.files
        assert text is not None and parameters is not None and trigger_us is not None and files is not None
        check_parameters(text, parameters)
        return QueryVersion(name, number, found.digest, text, parameters, trigger_us, now, files, found.signature)

    def _completed(self, current: QueryVersion) -> VersionContent:
        text = current.text if self.text is None else self.text
        parameters = dict(current.parameters) if self.parameters is None else self.parameters
        files = current.files if self.files is None else self.files
        signed = signed_message(current.text, current.parameters, current.files)
        stays = self.signature is None and signed_message(text, parameters, files) == signed
        return VersionContent(
            text,
            parameters,
            current.trigger_us if self.trigger_us is None else self.trigger_us,
            files,
            current.signature if stays else self.signature,
        )


def put_new(txn: Writing, version: QueryVersion, contents: Mapping[str, bytes] | None) -> None:
    """Store a new version with the contents of the files that came with it."""
    check_signed(txn, version)
    if contents:
        put_contents(txn, version.files, contents)
    put_version(txn, version)


def check_statements(text: str, what: str = "the text") -> None:
    """Check the size and characters of statements; the host parses them. `what` is the text's name in messages. Raises InvalidArgument, TooLarge."""
    if not isinstance(text, str):
        raise InvalidArgument(f"expected the SQL as text, got {type(text).__name__}")
    check_sql_text(text, what=what, bytes_max=limits.DEPLOYMENT_TEXT_BYTES_MAX)
    if not text.strip():
        raise InvalidSql("no statement found; expected CREATE STREAM scope.name AS SELECT …", line=1)


def check_values(parameters: Mapping[str, str] | None) -> dict[str, str]:
    """The values of parameters, in the order of their names; none for None. Raises InvalidArgument, TooLarge."""
    found = dict(parameters or {})
    if len(found) > limits.DEPLOYMENT_PARAMETERS_MAX:
        raise InvalidArgument(f"expected at most {limits.DEPLOYMENT_PARAMETERS_MAX:,} parameters, got {len(found):,}")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(f"expected the values of parameters as text, got {value!r:.100} for {name!r:.100}")
        check_sql_text(f"{name}={value}", what=f"parameter '{name:.100}'", bytes_max=limits.DEPLOYMENT_TEXT_BYTES_MAX)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in found.items())
    if size > limits.DEPLOYMENT_TEXT_BYTES_MAX:
        raise TooLarge("the parameters of a query", size, limits.DEPLOYMENT_TEXT_BYTES_MAX)
    return dict(sorted(found.items()))


def check_parameters(text: str, values: Mapping[str, str]) -> None:
    """Check that the statements declare each of these parameters, with a type that its value has, and that each declared one
    has a value or a default. Raises InvalidSql."""
    bind(declarations(text), values)


def check_upgrade(found: UpgradePlan, *, places: bool) -> UpgradePlan:
    """Return the plan if it may be done: nothing is refused, and statements that start over are given `places`. Raises
    InvalidArgument."""
    for each in found.refused:
        raise InvalidArgument(f"the statement for {each.target} (line {each.line}) can't be upgraded: {each.reason}")
    if found.restarts and not places:
        first = next(each for each in found.statements if each.verdict == "restarts")
        raise InvalidArgument(
            f"the statement for {first.target} (line {first.line}) has to start over: {first.reason}. Pass --restart-from "
            "with head, tail, a time or a cut; --plan shows all statements"
        )
    return found
