"""`run`: one broker from its start to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.runtime.process import freeze_imports
from anabranch.security.rights import is_internal
from anabranch.server.assemble import close_broker, open_broker
from anabranch.server.broker import Broker
from anabranch.server.certificates import made_authority, with_dev_tls
from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.drain import drain_together
from anabranch.server.edge.access_log import AccessLog
from anabranch.server.flight.front_end import FlightFrontEnd
from anabranch.server.front_end import FrontEnd
from anabranch.server.http_front_end import HttpFrontEnd
from anabranch.server.processes.front_end_process import FrontEndProcess, GrpcProcess
from anabranch.server.processes.workers import HttpWorkers
from anabranch.server.systemd import notify
from anabranch.store.facade import Store

_LOOK_S: Final = 0.5
_STOP_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Serving:
    """What a started broker serves: the address of each front end, by its name (for `queries`, the name
    of the host). `stream` is one of the store's streams, None if the store has none. `authority` is the file of the
    authority that clients have to trust, if `dev_tls` has made the certificate."""

    store: str
    addresses: Mapping[str, str]
    stream: str | None
    authority: Path | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a broker ended. `drained`: whether all calls ended within the time to drain. `failure`: why the broker ended
    without being asked to; None if it was asked."""

    drained: bool
    failure: str | None = None


def run(
    settings: ServerSettings, *, stopping: threading.Event, ready: Callable[[Serving], None] = lambda serving: None
) -> Ended:
    """Serve until `stopping` is set or a front end fails, then drain: accept no more, let the calls under way end, tell
    followers where to resume, and close the store, within `settings.drain_s` and some seconds. Acknowledged
    events are durable at any time, so an end without a drain loses none of them.

    `ready` is called once all front ends accept connections. Raises what `connect` raises, InvalidArgument."""
    broker = open_broker(settings, upkeep=True)
    counters = Counters(slots=_slots(settings))
    broker.loads.count = counters.shed
    access_log = AccessLog() if settings.access_log else None
    try:
        secured = with_dev_tls(settings, broker.store.runtime)
        front_ends = _front_ends(secured, broker, counters, access_log)
        started: list[FrontEnd] = []
        try:
            addresses = {}
            for front_end in front_ends:
                addresses[front_end.name] = front_end.start()
                started.append(front_end)
            authority = made_authority(settings, secured)
            freeze_imports()
            ready(Serving(broker.store.url, addresses, _some_stream(broker.store), authority))
            counters.started()
            notify("READY=1")
            failure = _serve(started, stopping, access_log)
        except BaseException:
            broker.drain.start()
            _stop(started)
            raise
        notify("STOPPING=1")
        counters.draining()
        broker.drain.start()
        drained = drain_together(started, settings.drain_s)
        _stop(started)
        if access_log is not None:
            access_log.flush()
        return Ended(drained, failure)
    finally:
        close_broker(broker)


def _some_stream(store: Store) -> str | None:
    names = (str(info.name) for info in store.streams.list())
    return next((name for name in names if not is_internal(name)), None)


def _slots(settings: ServerSettings) -> int:
    """The number of processes with counters: the main process, gRPC's, the workers and the host of queries."""
    return 3 + settings.workers


def _front_ends(
    settings: ServerSettings, broker: Broker, counters: Counters, access_log: AccessLog | None
) -> Sequence[FrontEnd]:
    front_ends: list[FrontEnd] = []
    slots = _slots(settings)
    if settings.flight:
        front_ends.append(FlightFrontEnd(broker, settings, counters, access_log))
    if settings.http and settings.workers > 1:
        front_ends.append(HttpWorkers(settings, counters, slots=slots, first_slot=2))
    elif settings.http:
        front_ends.append(HttpFrontEnd(broker, settings, counters, access_log))
    if settings.serves_grpc:
        front_ends.append(GrpcProcess("grpc", "gRPC", settings, counters, slots=slots, slot=1))
    if settings.queries:
        front_ends.append(
            FrontEndProcess("queries", "the host of queries", settings, counters, slots=slots, slot=slots - 1)
        )
    return front_ends


def _serve(front_ends: Sequence[FrontEnd], stopping: threading.Event, access_log: AccessLog | None) -> str | None:
    """Wait until the broker is asked to stop, or a front end has failed; returns why it failed; None if the
    broker was asked to stop."""
    while not stopping.wait(_LOOK_S):
        if access_log is not None:
            access_log.flush()
        for front_end in front_ends:
            if (failure := front_end.failed()) is not None:
                return f"{front_end.name}: {failure}"
    return None


def _stop(front_ends: Sequence[FrontEnd]) -> None:
    for front_end in reversed(front_ends):
        thread = threading.Thread(target=front_end.stop, daemon=True)
        thread.start()
        thread.join(_STOP_S)
