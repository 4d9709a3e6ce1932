"""A thousand followers (server-sent events) of one stream: delay, and the broker's CPU and memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

import uvloop

from bench.measure import percentile
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.serve_broker import ServedProcess
from bench.stores import fresh

_EVENTS_PER_S = 100
_TIMED = 20  # one follower of so many notes its delays: parsing all would take this client more than a core
_CLOCK = time.CLOCK_MONOTONIC


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Each event carries the time before its request; one follower of twenty, all in this process, notes the time at
    which it has the event. So the delay contains the append, and this client's own work for all followers."""
    followers, seconds = setting.scaled(1_000, 20), setting.scaled(10, 1)
    store = setting.folder / "store"
    fresh(store, segments=1).close()
    with ServedProcess.broker(store) as broker:
        delays, cores = uvloop.run(_measure(broker, followers, seconds * _EVENTS_PER_S))
        memory = broker.memory_mb()
    notes = (f"{followers:,} followers, {_EVENTS_PER_S} events/s for {seconds} s, client in one process beside it",)

    def line(what: str, unit: str, ours: float, bound: float | None) -> Result:
        target = None if bound is None else Target(Bound.AT_MOST, bound, absolute=True)
        return Result("serve_followers", what, unit, ours, target=target, notes=notes)

    return [
        line("append → follower by SSE, p50", "ms", percentile(delays, 0.5), None),
        line("append → follower by SSE, p99", "ms", percentile(delays, 0.99), 100),
        line("the broker's CPU meanwhile", "cores", cores, 1),
        line("the broker's resident memory", "MB", memory, 300),
    ]


async def _measure(broker: ServedProcess, followers: int, events: int) -> tuple[list[float], float]:
    delays: list[float] = []
    connected = [asyncio.get_running_loop().create_future() for _ in range(followers)]
    following = [
        asyncio.create_task(_follow(broker.port, events, delays, each, timed=number % _TIMED == 0))
        for number, each in enumerate(connected)
    ]
    await asyncio.gather(*connected)
    cpu, begun = broker.cpu_s(), time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    for number in range(events):
        await asyncio.sleep(max(0.0, begun + number / _EVENTS_PER_S - time.perf_counter()))
        body = str(time.clock_gettime_ns(_CLOCK)).encode()
        writer.write(
            b"POST /v1/streams/bench/events/events HTTP/1.1\r\nHost: a\r\nContent-Type: application/octet-stream\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await reader.readexactly(int(lengths[0].partition(b":")[2]))
    await asyncio.gather(*following)
    cores = (broker.cpu_s() - cpu) / (time.perf_counter() - begun)
    writer.close()
    return delays, cores


async def _follow(port: int, events: int, delays: list[float], connected: asyncio.Future[None], *, timed: bool) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/streams/bench/events/events?follow&from=tail&format=sse HTTP/1.1\r\nHost: a\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    connected.set_result(None)
    seen = 0
    while not timed and seen < events:
        data = await reader.read(1 << 16)
        if not data:
            raise RuntimeError("the broker ended a follower")
        seen += data.count(b"\n\n")
    while timed and seen < events:
        line = await reader.readline()
        if not line:
            raise RuntimeError("the broker ended a follower")
        if line.startswith(b"data: "):
            now = time.clock_gettime_ns(_CLOCK)
            delays.append((now - _sent_at(line[6:])) / 1e6)
            seen += 1
    writer.close()


def _sent_at(data: bytes) -> int:
    return int(json.loads(data)["payload"])


FIGURE = Benchmark("serve_followers", "a thousand followers of one stream of a broker", run, heavy=True)
