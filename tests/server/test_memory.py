"""A broker's memory doesn't grow with what passes through it: measured in its process after 24 MiB, and after 96 MiB
more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from tests.server.kit import BrokerProcess

pytestmark = pytest.mark.process
BLOCK = os.urandom(limits.MIB)
WARM_BLOCKS, MORE_BLOCKS = 24, 96
GROWTH_MAX_BYTES = 40 * limits.MIB  # by which pools and caches may still fill up; it would be 96 MiB if bytes were kept
Use = Callable[["Used", int], None]


class Used:
    """A broker, and its clients: one by HTTP, one by Arrow Flight."""

    def __init__(self, broker: BrokerProcess, store: ab.Store) -> None:
        self.broker = broker
        self.store = store
        self.http = httpx.Client(base_url=broker.http, timeout=60)

    def memory(self) -> int:
        """The bytes of memory that the process has for itself, files not counted."""
        status = Path(f"/proc/{self.broker.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Used]:
    folder = tmp_path_factory.mktemp("memory")
    settings = ["--set", "grpc=false", "--set", "maintenance_s=off"]
    with (
        BrokerProcess(folder / "river", *settings, folder=folder) as broker,
        ab.connect(broker.addresses["flight"]) as store,
    ):
        store.scopes.create("s")
        with store.bytes("s/download", "xb") as file:
            for _ in range(MORE_BLOCKS):
                file.write(BLOCK)
        store.streams.create("s/events")
        used = Used(broker, store)
        with used.http:
            yield used


def upload(used: Used, blocks: int) -> None:
    url = f"/v1/streams/s/upload-{blocks}/bytes"
    assert used.http.post(url, content=iter(repeat(BLOCK, blocks))).status_code == 201


def patches(used: Used, blocks: int) -> None:
    url = f"/v1/streams/s/patched-{blocks}/bytes"
    assert used.http.post(url, headers={"Upload-Length": str(blocks * len(BLOCK))}).status_code == 201
    kind = {"Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}
    for number in range(0, blocks, 4):
        answer = used.http.patch(url, content=BLOCK * 4, headers={**kind, "Upload-Offset": str(number * len(BLOCK))})
        assert answer.status_code == 204, answer.text


def download(used: Used, blocks: int) -> None:
    part = {"Range": f"bytes=0-{blocks * len(BLOCK) - 1}"}
    with used.http.stream("GET", "/v1/streams/s/download/bytes", headers=part) as answer:
        assert sum(map(len, answer.iter_raw())) == blocks * len(BLOCK)


def ranges(used: Used, blocks: int) -> None:
    for number in range(blocks):
        start = number * len(BLOCK)
        part = {"Range": f"bytes={start}-{start + len(BLOCK) - 1}"}
        answer = used.http.get("/v1/streams/s/download/bytes", headers=part)
        assert len(answer.content) == len(BLOCK)


def write_bytes(used: Used, blocks: int) -> None:
    with used.store.bytes(f"s/file-{blocks}", "xb") as file:
        for _ in range(blocks):
            file.write(BLOCK)


def read_bytes(used: Used, blocks: int) -> None:
    with used.store.bytes("s/download") as file:
        assert sum(len(file.read(len(BLOCK))) for _ in range(blocks)) == blocks * len(BLOCK)


def lines(used: Used, blocks: int) -> None:
    line = json.dumps({"payload": "x" * 10_000, "key": "k"}).encode() + b"\n"
    body = line * (8 * limits.MIB // len(line))
    for _ in range(blocks // 8):
        kind = {"Content-Type": "application/x-ndjson"}
        answer = used.http.post("/v1/streams/s/events/events", content=body, headers=kind)
        assert answer.status_code == 200, answer.text


def batches(used: Used, blocks: int) -> None:
    table = pa.table({"payload": [BLOCK[:16_384]] * 64, "key": ["k"] * 64})
    with used.store.writer("s/events") as writer:
        for _ in range(blocks):
            writer.write_batch(table)


def large_events(used: Used, blocks: int) -> None:
    with used.store.writer("s/events") as writer:
        for _ in range(blocks // 8):
            writer.write(memoryview(BLOCK * 8)).result()


def transaction(used: Used, blocks: int) -> None:
    table = pa.table({"payload": [BLOCK[:16_384]] * 64, "key": ["k"] * 64})
    with used.store.transaction() as transaction:
        writer = transaction.writer("s/events")
        for _ in range(blocks):
            writer.write_batch(table)


@pytest.mark.parametrize(
    "use",
    [
        upload,
        read_bytes,
        *(
            pytest.param(use, marks=pytest.mark.slow)
            for use in (patches, download, ranges, write_bytes, lines, batches, large_events, transaction)
        ),
    ],
    ids=lambda use: use.__name__,
)
def test_memory_does_not_grow_with_what_passes_through(used: Used, use: Use) -> None:
    use(used, WARM_BLOCKS)
    before = used.memory()
    use(used, MORE_BLOCKS)
    assert used.memory() - before < GROWTH_MAX_BYTES
