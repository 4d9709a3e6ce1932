"""POST of one JSON event a request over 64 connections, durable, beside the empty handler of bare Starlette."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median

import uvloop

from bench.measure import in_turn
from bench.payloads import PAYLOAD_BYTES
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.serve_broker import ServedProcess
from bench.stores import fresh

_CONNECTIONS = 64
_BODY = b'{"key":"a","payload":"' + b"x" * PAYLOAD_BYTES + b'"}'


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Each connection sends its next request when the answer to the last has come. Answers are counted, not parsed:
    the client is one process, the same for both."""
    count = setting.scaled(20_000, 500)
    store = setting.folder / "store"
    fresh(store, segments=8).close()
    cpu: dict[str, list[float]] = {"broker": [], "bare": []}
    with ServedProcess.broker(store) as broker, ServedProcess.bare(setting.folder) as bare:

        def rate(name: str, server: ServedProcess) -> float:
            before = server.cpu_s()
            taken = uvloop.run(post_all(server.port, count))
            cpu[name].append((server.cpu_s() - before) / count * 1e6)
            return count / taken

        for name, server in (("broker", broker), ("bare", bare)):
            rate(name, server)
            cpu[name].clear()
        rounds = in_turn(setting.scaled(5, 1), lambda: rate("broker", broker), lambda: rate("bare", bare))
    return [
        Result(
            "serve_post",
            f"POST of one JSON event, {_CONNECTIONS} connections, durable",
            "requests/s",
            median(rounds.ours),
            median(rounds.other),
            "bare Starlette on uvicorn, an empty handler",
            rounds.ratio,
            rounds.spread,
            Target(Bound.AT_LEAST, 0.5),
            (
                f"server CPU per request: {median(cpu['broker']):.0f} µs, bare {median(cpu['bare']):.0f} µs",
                f"{count:,} requests a round; the client, one process, shares the machine",
            ),
        )
    ]


async def post_all(port: int, count: int) -> float:
    """The seconds for `count` requests over all connections."""
    head = (
        f"POST /v1/streams/bench/events/events HTTP/1.1\r\nHost: localhost:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n"
    )
    request = head.encode() + _BODY
    left = [count]

    async def caller() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left[0] > 0:
            left[0] -= 1
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer.decode())
            lengths = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0].partition(b":")[2]))
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(_CONNECTIONS)))
    return time.perf_counter() - begun


FIGURE = Benchmark("serve_post", "POST of one JSON event to a broker", run)
