"""A call that appends whose task ends in an unexpected way. Needs no broker: its answers are made up."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anabranch.remote.append_call import AppendCall
from anabranch.runtime.ports import Runtime
from anabranch.wire.v1 import anabranch_pb2 as v1
from tests.waiting import until


class Broker:
    """What `AppendCall` needs of a connection: accepts the call, and then has no memory for an answer."""

    def __init__(self) -> None:
        self.generation = 0
        self.channel = self
        self._opened = False

    def put(self, command: v1.AppendCommand, columns: pa.Schema) -> tuple[Broker, Broker]:
        return self, self

    def read(self) -> pa.Buffer:
        if self._opened:
            raise MemoryError
        self._opened = True
        return pa.py_buffer(v1.AppendOpened().SerializeToString())

    def done_writing(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_whose_answers_can_not_be_read_has_ended() -> None:
    broker: Any = Broker()
    runtime = Runtime()
    schema = pa.schema([("n", pa.int64())])
    changed = runtime.tasks.condition()
    call = AppendCall(broker, runtime, v1.AppendCommand(), schema, changed, lambda sent, answer: None)
    until(lambda: call.ended)
    call.end()
