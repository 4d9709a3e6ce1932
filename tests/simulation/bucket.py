"""A simulated bucket under the real adapter for object stores: requests may fail to take effect, and answers may be
lost.

It replaces the client library's functions (`Bucket.under`), so all of Anabranch's code above them is real: repeated
requests, lost answers of a PUT, conflicts, listings by pages, ranged reads. It has the guarantees of S3: a PUT with
`mode="create"` makes a whole object or none and never overwrites; a conditional PUT concurrent with another of its key
may be rejected with 409, both may; a listing is in order, and shows every object that existed during the whole listing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, TypeVar

from obstore.exceptions import AlreadyExistsError, GenericError

from anabranch.blobs.address import parse
from anabranch.blobs.cache import PooledBlobs
from anabranch.blobs.objects import ObjectBlobs
from anabranch.blobs.port import Blobs
from anabranch.runtime.ports import Runtime
from anabranch.testing.faults import Action
from tests.simulation.gate import SimGate

__all__ = ["Bucket"]

T = TypeVar("T")

_ADDRESS: Final = "s3://simulated/river?endpoint=http://127.0.0.1:1&allow_http=true&region=us-east-1"
_SILENT: Final = (Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST, Action.UNCERTAIN_LATE)


class Bucket:
    """The objects, which outlive all processes; and which runtime's requests go through which gate."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._under_way: list[str] = []  # keys of PUTs that no caller waits for any more
        self._doors: list[tuple[object, SimGate]] = []

    def blobs(self, runtime: Runtime, gate: SimGate) -> Blobs:
        """The bucket as a process sees it."""
        inside = ObjectBlobs(parse(_ADDRESS), runtime)
        self._doors.append((inside._store, gate))
        return PooledBlobs(inside, runtime)

    def bodies(self) -> dict[str, bytes]:
        """Returns all objects as they are now, by the keys of their blobs."""
        folder = f"{parse(_ADDRESS).prefix}/"
        return {key.removeprefix(folder): body for key, body in sorted(self.objects.items()) if key.startswith(folder)}

    @contextmanager
    def under(self, module: ModuleType) -> Iterator[None]:
        """Lets a module that uses `obstore` use this bucket instead."""
        real = module.obstore
        setattr(module, "obstore", self)  # noqa: B010 - to the type checker it has no such name
        try:
            yield
        finally:
            setattr(module, "obstore", real)  # noqa: B010

    # the library's functions

    def put(self, store: object, key: str, data: Sequence[Any] | bytes, **options: Any) -> None:
        """See `obstore.put`."""
        assert options == {"mode": "create", "use_multipart": False}
        body = data if isinstance(data, bytes) else b"".join(map(bytes, data))
        gate = self._gate(store)
        action = gate.before("s3.put")
        if key in self._under_way and gate.scheduler.rng.random() < 0.5:
            raise AlreadyExistsError(
                "the server answered with status code: 409 <Code>ConditionalRequestConflict</Code>"
            )
        if action in (Action.UNCERTAIN_LATE, Action.DUPLICATE):
            self._put_late(gate, key, body)
        if action not in (Action.UNCERTAIN_LATE, Action.UNCERTAIN_LOST):
            self._put(key, body)
        self._answer(gate, "s3.put", action)

    def _put(self, key: str, body: bytes) -> None:
        if key in self.objects:
            raise AlreadyExistsError("the server answered with status code: 412 <Code>PreconditionFailed</Code>")
        self.objects[key] = body

    def _put_late(self, gate: SimGate, key: str, body: bytes) -> None:
        self._under_way.append(key)

        def land() -> None:
            self._under_way.remove(key)
            self.objects.setdefault(key, body)

        gate.later("s3.put", land, survives=True)

    def get_range(self, store: object, key: str, *, start: int, end: int) -> bytes:
        """See `obstore.get_range`."""

        def read() -> bytes:
            body = self._found(key)
            if start >= len(body):
                raise GenericError("the server answered with status code: 416 <Code>InvalidRange</Code>")
            return body[start:end]

        return self._ask(store, "s3.get", read)

    def head(self, store: object, key: str) -> dict[str, int]:
        """See `obstore.head`."""
        return self._ask(store, "s3.head", lambda: {"size": len(self._found(key))})

    def delete(self, store: object, key: str) -> None:
        """See `obstore.delete`. Removing a missing object is no error, as in S3."""
        gate = self._gate(store)
        action = gate.before("s3.delete")
        if action is not Action.UNCERTAIN_LOST:
            self.objects.pop(key, None)
        self._answer(gate, "s3.delete", action)

    def list(
        self, store: object, prefix: str | None = None, *, offset: str | None = None, chunk_size: int = 50
    ) -> Iterator[list[dict[str, Any]]]:
        """See `obstore.list`: one request per page, each as of its own moment."""
        last = offset or ""
        folder = "" if prefix is None else f"{prefix}/"

        def page() -> list[dict[str, Any]]:
            keys = sorted(key for key in self.objects if key.startswith(folder) and key > last)
            return [{"path": key, "size": len(self.objects[key])} for key in keys[:chunk_size]]

        while entries := self._ask(store, "s3.list", page):
            yield entries
            last = entries[-1]["path"]

    # requests

    def _gate(self, store: object) -> SimGate:
        return next(gate for door, gate in self._doors if door is store)

    def _found(self, key: str) -> bytes:
        if key not in self.objects:
            raise FileNotFoundError(f"Object at location {key} not found")
        return self.objects[key]

    def _ask(self, store: object, name: str, effect: Callable[[], T]) -> T:
        gate = self._gate(store)
        action = gate.before(name)
        result = effect()
        self._answer(gate, name, action)
        return result

    def _answer(self, gate: SimGate, name: str, action: Action) -> None:
        if action in _SILENT:
            gate.pause(0.002)
            refused = action is Action.UNCERTAIN_LOST and gate.scheduler.rng.random() < 0.5
            raise GenericError(
                "the server answered with status code: 503 <Code>SlowDown</Code>" if refused else "Timeout"
            )
        gate.after(name, action)
