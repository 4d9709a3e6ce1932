"""What a load balancer is told: whether the broker is ready."""

from __future__ import annotations

import anabranch as ab
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.counters import Counters
from anabranch.server.edge.health import Health


async def test_a_broker_is_ready_once_all_front_ends_serve_and_until_it_ends() -> None:
    with ab.connect("memory://") as store:
        broker, main = Broker(store, OpenGuard()), Counters(slots=2)
        worker = Health(broker, Counters(slots=2, slot=1, descriptor=main.descriptor))
        assert await worker.answer({"path": "/readyz"}) == (503, "starting\n")
        assert await worker.answer({"path": "/healthz"}) == (200, "ok\n")
        main.started()
        assert await worker.answer({"path": "/readyz"}) == (200, "ready\n")
        broker.drain.start()
        assert await worker.answer({"path": "/readyz"}) == (503, "draining\n")
