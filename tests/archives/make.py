"""Makes the archive that is kept beside this file, as the release of its day wrote it. Every later one must import it.

    python -m tests.archives.make 1

A new number is for a new format; what is there is never made again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab

HERE = Path(__file__).parent
FIRST = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("celsius", pa.float64())])
THEN = pa.schema([*FIRST, ("places", pa.list_(pa.string()))])


def fill(store: ab.Store) -> None:
    """A typed stream that was split, evolved, merged and truncated, and a raw one."""
    streams = store.streams
    store.scopes.create("iot", tags={"plant": "7"})
    streams.create("iot/sensors", schema=FIRST, key="device", time="at", scaling=2, tags={"unit": "°C"})
    with store.writer("iot/sensors") as writer:
        for n in range(12):
            writer.write({"device": f"d{n % 5}", "at": 1_000_000 * n, "celsius": n / 4}).result()
    streams.truncate("iot/sensors", store.cuts.at("iot/sensors", 3_000_000, by="event"))
    streams.scale("iot/sensors", 3)
    streams.evolve("iot/sensors", THEN)
    with store.writer("iot/sensors") as writer:
        for n in range(12, 20):
            places = None if n % 3 else [f"hall {n}", None]
            writer.write({"device": f"d{n % 5}", "at": 1_000_000 * n, "celsius": None, "places": places}).result()
    streams.scale("iot/sensors", 1)
    streams.create("iot/raw")
    with store.writer("iot/raw") as writer:
        for n in range(3):
            writer.write(f"event {n}".encode(), key=None if n else "k").result()
    streams.seal("iot/raw")


def told(store: ab.Store, stream: str) -> list[Any]:
    """All events of a stream, by segment and offset, as JSON."""
    with store.reader(stream) as reader:
        table = pa.Table.from_batches(reader.batches(), reader.schema)
    rows = table.sort_by([("_segment", "ascending"), ("_offset", "ascending")]).to_pylist()
    text = json.dumps(rows, default=lambda value: value.decode() if isinstance(value, bytes) else str(value))
    events: list[Any] = json.loads(text)
    return events


def main(version: str) -> None:
    target = HERE / f"v{version}"
    target.mkdir()
    key = Path(tempfile.mkdtemp()) / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    key.chmod(0o600)
    public = HERE / f"v{version}.pub.pem"
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    with ab.connect(tempfile.mkdtemp(), create=True) as store:
        fill(store)
        report = store.archives.create_scope("iot", target, sign=str(key))
        kept = {
            "digest": report.digest,
            "streams": {
                name: {"digest": store.archives.digest(name).value, "events": told(store, name)}
                for name in ("iot/raw", "iot/sensors")
            },
        }
    (HERE / f"v{version}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
