"""A further process of a broker, as `supervisor` starts it: `python -m anabranch.server.processes.child`.

Its order is one JSON line on stdin, so that no secret is among the arguments of a process. It answers with one JSON line
on stdout once it serves, and drains and ends when stdin ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.runtime.process import freeze_imports
from anabranch.server.assemble import close_broker, open_broker
from anabranch.server.broker import Broker
from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.edge.access_log import AccessLog
from anabranch.server.front_end import FrontEnd
from anabranch.server.logs import log_to_stderr

_LOOK_S = 0.5


def main() -> None:
    """Serve one front end until stdin ends, because the main process has closed it or is gone; then drain. After any
    failure the process ends, even if threads are still running."""
    code = 1
    try:
        code = _run()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _run() -> int:
    order = json.loads(sys.stdin.readline())
    settings = ServerSettings(**order["settings"])
    log_to_stderr(settings.log_level)
    stopping = threading.Event()
    # A terminal or container sends these signals to all processes, but this one ends when the main process closes
    # stdin. Not SIG_IGN: processes that this one starts would inherit it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, frame: None)
    threading.Thread(target=_await_end_of_stdin, args=(stopping,), daemon=True).start()
    try:
        return _serve(order, settings, stopping)
    except AnabranchError as exc:
        _answer(error=str(exc))
        return 1


def _serve(order: dict[str, Any], settings: ServerSettings, stopping: threading.Event) -> int:
    counters = Counters(slots=order["slots"], slot=order["slot"], descriptor=order["counters"])
    broker = open_broker(settings, upkeep=False)
    broker.loads.count = counters.shed
    try:
        front_end = _front_end(order, broker, settings, counters)
        address = front_end.start()
        freeze_imports()
        _answer(address=address)
        failure = None
        while failure is None and not stopping.wait(_LOOK_S):
            failure = front_end.failed()
        broker.drain.start()
        front_end.drain(settings.drain_s)
        front_end.stop()
        return 0 if failure is None else 1
    finally:
        close_broker(broker)


def _front_end(order: dict[str, Any], broker: Broker, settings: ServerSettings, counters: Counters) -> FrontEnd:
    """The front end that the order names. Its module is imported only by the process that serves it."""
    log = AccessLog() if settings.access_log else None
    if order["front_end"] == "grpc":
        from anabranch.server.grpc.front_end import GrpcFrontEnd

        return GrpcFrontEnd(broker, settings, counters, log)
    if order["front_end"] == "queries":
        from anabranch.server.query_host import QueryHostFrontEnd

        return QueryHostFrontEnd(broker.store, spares=settings.queries_spares)
    from anabranch.server.http_front_end import HttpFrontEnd

    return HttpFrontEnd(broker, settings, counters, log, listener=socket.socket(fileno=order["listener"]))


def _answer(**fields: str) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _await_end_of_stdin(stopping: threading.Event) -> None:
    sys.stdin.buffer.read()
    stopping.set()


if __name__ == "__main__":
    main()
