"""What a client holds of a statement. The handle has all of it, so any broker of the store can continue with it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass

import pyarrow as pa

from anabranch.core.json_text import parse_json
from anabranch.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """A query, and the values of its parameters as an Arrow stream. `id` is unique, and can't be guessed."""

    id: str
    sql: str
    parameters: bytes = b""

    def to_bytes(self) -> bytes:
        """The handle."""
        parameters = b64encode(self.parameters).decode()
        return json.dumps({"id": self.id, "sql": self.sql, "parameters": parameters}).encode()

    @classmethod
    def from_bytes(cls, handle: bytes) -> SqlStatement:
        """The statement of a handle. Raises InvalidArgument."""
        try:
            found = parse_json(handle)
            id_, sql, parameters = found["id"], found["sql"], found["parameters"]
            if not (isinstance(id_, str) and isinstance(sql, str) and isinstance(parameters, str)):
                raise TypeError
            return cls(id_, sql, b64decode(parameters, validate=True))
        except (ValueError, KeyError, TypeError) as exc:
            raise InvalidArgument("this is not a handle of a statement of this broker") from exc

    @property
    def table(self) -> pa.Table | None:
        """The parameters. Raises InvalidArgument."""
        if not self.parameters:
            return None
        try:
            return pa.ipc.open_stream(self.parameters).read_all()
        except pa.ArrowException as exc:
            raise InvalidArgument("the parameters of the statement can't be read") from exc
