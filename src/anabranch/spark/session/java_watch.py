"""Watches whether Spark's Java process answers, so that no call into it waits forever.

A call may rightly take hours (a query, its start, `awaitTermination`), so no call has a deadline of its own. Instead a
thread asks Java for the time every few seconds, on a connection of its own. If several questions in a row stay
unanswered, Java is stopped or stuck. Then the connections of the waiting calls are closed, and they raise Py4J's errors.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

import psutil
from py4j import protocol

from anabranch import limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JVM_GONE_ERRORS", "JavaWatch", "silent_java", "watch_java"]

# Errors of Spark calls after its Java process was killed: the first for the call in progress, the second for later
# ones.
JVM_GONE_ERRORS: Final = (protocol.Py4JError, ConnectionError)

_QUESTIONS: Final = 3  # unanswered in a row: one may have waited while this process itself was stopped
_PAUSE_S: Final = 5.0
_AGAIN_S: Final = 0.5  # after a question that failed
_ANSWER_BYTES_MAX: Final = 4096
_ASK: Final = (
    f"{protocol.CALL_COMMAND_NAME}{protocol.STATIC_PREFIX}java.lang.System\nnanoTime\n{protocol.END_COMMAND_PART}"
)

_watches: dict[int, JavaWatch] = {}  # by port
_lock = threading.Lock()


class JavaWatch:
    """The watch over one Java process, by the address of its Py4J gateway. Ends when the process has ended."""

    def __init__(self, address: str, port: int, token: str | None) -> None:
        self._address = (address, port)
        self._token = token
        self._connection: socket.socket | None = None
        self.silent = False  # no answer for `limits.JAVA_ANSWER_S`
        self.ended = False

    def start(self) -> None:
        """Start watching, in a daemon thread."""
        threading.Thread(target=self._run, name="java-watch", daemon=True).start()

    def _run(self) -> None:
        unanswered, pause = 0, threading.Event()
        while True:
            try:
                self._ask()
                unanswered, self.silent = 0, False
            except ConnectionRefusedError:
                self.ended = True
                return
            except OSError:
                self._hang_up()
                unanswered += 1
                self.silent = unanswered >= _QUESTIONS
            if self.silent:
                self._release()
            pause.wait(_AGAIN_S if unanswered else min(_PAUSE_S, self._share_s))

    def _ask(self) -> None:
        """Ask for the time. Raises OSError if there is no answer within a share of `limits.JAVA_ANSWER_S`."""
        if self._connection is None:
            self._connection = socket.create_connection(self._address, self._share_s)
            if self._token is not None:
                self._exchange(f"{protocol.AUTH_COMMAND_NAME}\n{self._token}\n")
        self._exchange(_ASK)

    def _exchange(self, command: str) -> None:
        assert self._connection is not None
        self._connection.settimeout(self._share_s)
        self._connection.sendall(command.encode())
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._connection.recv(_ANSWER_BYTES_MAX)
            if not part:
                raise ConnectionResetError("the connection was closed")
            answer += part

    @property
    def _share_s(self) -> float:
        return limits.JAVA_ANSWER_S / _QUESTIONS

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _release(self) -> None:
        """Close this process's connections to Java, so that the calls that wait on them fail. Py4J may repeat a call
        once on a new connection, so this is repeated while Java is silent."""
        for found in psutil.Process().net_connections("tcp"):
            if found.raddr and found.raddr[1] == self._address[1] and found.fd >= 0:
                try:
                    copied = socket.socket(fileno=os.dup(found.fd))
                except OSError:  # closed meanwhile
                    continue
                with copied:
                    try:
                        if copied.getpeername()[1] == self._address[1]:  # else the descriptor was reused meanwhile
                            copied.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        continue


def watch_java(spark: SparkSession) -> None:
    """Watch the Java process of a session, once per process. Sessions without one (Spark Connect) are left alone."""
    parameters: Any = getattr(getattr(getattr(spark, "_sc", None), "_gateway", None), "gateway_parameters", None)
    if parameters is None:
        return
    with _lock:
        known = _watches.get(parameters.port)
        if known is None or known.ended:
            watch = _watches[parameters.port] = JavaWatch(parameters.address, parameters.port, parameters.auth_token)
            watch.start()


def silent_java() -> bool:
    """True if a watched Java process does not answer at present."""
    return any(each.silent for each in tuple(_watches.values()))
