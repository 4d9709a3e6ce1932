"""One event per call, pipelined: the cost per event of the path through Python, compared with clients of other
systems."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from statistics import median

from bench import peers
from bench.measure import in_turn, seconds
from bench.payloads import PAYLOAD_BYTES, keys, payloads
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import fresh

SEGMENTS = 8
TARGETS = {"redis": Target(Bound.AT_LEAST, 5.0)}


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """`writer.write` for each event and one `flush`, alternating with each peer's pipelined writes, until all are
    acknowledged. Ours are durable then; what a peer's acknowledgement means is noted beside it."""
    count = setting.scaled(200_000, 2_000)
    bodies, names = payloads(count, 1), keys(count, 1)
    results: list[Result] = []
    with fresh(setting.folder / "store", segments=SEGMENTS) as store, store.writer("bench/events") as writer:

        def append() -> None:
            write = writer.write
            for body, key in zip(bodies, names, strict=True):
                write(body, key=key)
            writer.flush()

        append()
        missing: list[str] = []
        with closing(peers.each(setting, missing)) as running:
            for peer in running:
                rounds = in_turn(
                    setting.scaled(5, 1),
                    lambda: count / seconds(append) / 1e3,
                    lambda peer=peer: count / peer.write(bodies, names) / 1e3,  # type: ignore[misc]
                )
                results.append(
                    Result(
                        "append_events",
                        f"writer.write, one event a call, pipelined, beside {peer.version()}",
                        "k events/s",
                        median(rounds.ours),
                        median(rounds.other),
                        peer.write_style,
                        rounds.ratio,
                        rounds.spread,
                        TARGETS.get(peer.name),
                        (
                            f"key and {PAYLOAD_BYTES} bytes of payload in both; ours over {SEGMENTS} segments, durable",
                            f"{peer.name}: {peer.durability}",
                        ),
                    )
                )
        if not any(result.target for result in results):
            alone = median(count / seconds(append) / 1e3 for _ in range(setting.scaled(5, 1)))
            what = "writer.write, one event a call, pipelined"
            results.append(
                Result("append_events", what, "k events/s", alone, target=TARGETS["redis"], notes=tuple(missing))
            )
        elif missing:
            results[0] = results[0].with_notes(*missing)
    return results


FIGURE = Benchmark("append_events", "one event a call, pipelined", run)
