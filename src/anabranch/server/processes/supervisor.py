"""Starts a further process of a broker, and replaces it when it ends by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from anabranch.errors import InvalidArgument
from anabranch.runtime.log_events import PROCESS_ENDED, PROCESS_NOT_STARTED

_START_S: Final = 60.0
_PAUSE_S_FIRST: Final = 0.1
_PAUSE_S_MAX: Final = 10.0
_STEADY_S: Final = 30.0  # a process that has served this long counts as healthy again
_FAILURES_MAX: Final = 8


class SupervisedProcess:
    """One process and its successors. `order` is the JSON object that each gets on stdin; `descriptors` are the file
    descriptors that they inherit."""

    def __init__(
        self, name: str, order: Mapping[str, Any], descriptors: Sequence[int], *, replaced: Callable[[], None]
    ) -> None:
        self.name = name
        self.order = dict(order)
        self._descriptors = tuple(descriptors)
        self._replaced = replaced
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._problem: str | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> dict[str, Any]:
        """Start the process, and wait until it serves. Returns its answer. Raises InvalidArgument with the reason that
        it answers."""
        answer = self._start()
        self._thread = threading.Thread(target=self._supervise, name=self.name, daemon=True)
        self._thread.start()
        return answer

    def failed(self) -> str | None:
        """Why the process is not replaced any more; None while it serves or is about to be replaced."""
        return self._problem

    def drain(self, seconds: float) -> bool:
        """Ask the process to drain, and wait for its end. Returns False if it still runs after `seconds`."""
        self._ending.set()
        process = self._process
        if process is None or process.poll() is not None:
            return True
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Kill the process."""
        self._ending.set()
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.kill()
            process.wait(_START_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _start(self) -> dict[str, Any]:
        process = subprocess.Popen(
            [sys.executable, "-m", "anabranch.server.processes.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=self._descriptors,
        )
        self._process = process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(self.order).encode() + b"\n")
            process.stdin.flush()
            line = _line_within(process, _START_S)
            answer: dict[str, Any] = json.loads(line)
        except (OSError, ValueError):
            answer = {"error": "no answer"}
        if "error" in answer:
            process.kill()
            process.wait(_START_S)
            raise InvalidArgument(f"{self.name} did not start: {answer['error']}")
        return answer

    def _supervise(self) -> None:
        pause_s = _PAUSE_S_FIRST
        while not self._ending.is_set():
            assert self._process is not None
            began = time.monotonic()
            code = self._await_end(self._process)
            if code is None:
                return
            if time.monotonic() - began > _STEADY_S:
                pause_s, self._failures = _PAUSE_S_FIRST, 0
            while True:
                self._failures += 1
                if self._failures > _FAILURES_MAX:
                    self._problem = f"{self.name} has failed {_FAILURES_MAX} times in a row"
                    return
                PROCESS_ENDED(worker=self.name, code=code, pause_s=pause_s)
                if self._ending.wait(pause_s):
                    return
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)
                self._replaced()
                try:
                    self._start()
                    break
                except InvalidArgument as exc:
                    PROCESS_NOT_STARTED(worker=self.name, error=exc)
            if self._ending.is_set():  # `drain` may have seen only the previous process
                self.drain(_START_S)

    def _await_end(self, process: subprocess.Popen[bytes]) -> int | None:
        """The exit code of the process; None if it was asked to end."""
        while True:
            try:
                code = process.wait(1.0)
            except subprocess.TimeoutExpired:
                continue
            return None if self._ending.is_set() else code


def _line_within(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """The first line that the process prints. The process is killed if it prints none within `seconds`."""
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdout is not None
        return process.stdout.readline()
    finally:
        timer.cancel()
