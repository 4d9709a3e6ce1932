"""Ctrl-C is taken as an event."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from anabranch.cli.interrupts import deferred, interrupts


def test_a_signal_counts_when_nobody_reads_its_note(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as unread:
        monkeypatch.setattr(sys, "stderr", unread)
        with interrupts("stopping") as interrupted:
            signal.raise_signal(signal.SIGINT)
        monkeypatch.undo()
    assert interrupted.is_set()


def test_a_deferred_signal_counts_also_after_an_error() -> None:
    def fail_to_load() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            raise ImportError

    with pytest.raises(KeyboardInterrupt):
        fail_to_load()
