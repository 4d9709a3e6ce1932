"""A session whose task ends in an unexpected way. Needs no broker: its messages are made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError
from anabranch.remote.session import RemoteSession
from anabranch.runtime.ports import Runtime
from anabranch.wire.frames import Frame
from tests.waiting import until


class Chunk(NamedTuple):
    app_metadata: pa.Buffer


class Broker:
    """What a session needs of a connection: opens it, and then has no memory for a message."""

    generation = 0
    place = "nowhere"

    def __init__(self) -> None:
        self._opened = False

    def retried(self, act: Callable[[], None]) -> None:
        act()

    def exchange(self, command: bytes) -> tuple[Any, Any]:
        return self, self

    def read_chunk(self) -> Chunk:
        if self._opened:
            raise MemoryError("no memory")
        self._opened = True
        return Chunk(Frame("opened", 0, {"session": "x"}).pack())

    def write_metadata(self, message: pa.Buffer) -> None:
        pass

    def lost(self, error: Exception, generation: int | None = None) -> None:
        pass

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_session_that_can_not_receive_any_more_has_ended() -> None:
    connection: Any = Broker()
    session = RemoteSession(
        "made up", connection, Runtime(), opening=lambda: Frame("open", 0, {}), on_opened=lambda frame: None
    )
    until(lambda: session.ended, 5)
    with pytest.raises(AnabranchError, match="no memory"):
        session.request("anything", {})
