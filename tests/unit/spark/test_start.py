"""Starting Spark leaves a program's own handler of Ctrl-C where it is; the demo itself is interrupted in tests/spark/test_demo.py."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.spark.session.start import start_within_deadline


class Builder:
    """Does what Spark does when it starts: sets a handler of its own."""

    def getOrCreate(self) -> str:  # noqa: N802 - the name that Spark gives it
        signal.signal(signal.SIGINT, spark_handler)
        return "session"


def spark_handler(*_: Any) -> None: ...


def own_handler(*_: Any) -> None: ...


@pytest.fixture(autouse=True)
def handler_of_the_tests() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("before", "after"),
    [(own_handler, own_handler), (signal.SIG_IGN, signal.SIG_IGN), (signal.default_int_handler, spark_handler)],
    ids=["its own", "ignored", "Python's"],
)
def test_the_handler_of_the_program_stays(before: Any, after: Any) -> None:
    signal.signal(signal.SIGINT, before)
    builder: Any = Builder()
    assert start_within_deadline(builder) == "session"
    assert signal.getsignal(signal.SIGINT) is after
