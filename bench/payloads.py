"""Events to measure with: 100 bytes of payload, keys drawn from 10,000."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PAYLOAD_BYTES = 100
KEYS = 10_000
_START_US = 1_750_000_000_000_000


def key_texts() -> list[str]:
    """Returns the distinct keys."""
    return [f"device-{number:05d}" for number in range(KEYS)]


def payloads(count: int, seed: int) -> list[bytes]:
    """Returns `count` payloads that do not compress."""
    data = _random_bytes(count, seed).tobytes()
    return [data[i : i + PAYLOAD_BYTES] for i in range(0, len(data), PAYLOAD_BYTES)]


def keys(count: int, seed: int) -> list[str]:
    """Returns `count` keys, evenly drawn."""
    texts = key_texts()
    return [texts[number] for number in np.random.default_rng(seed).integers(0, KEYS, count)]


def raw_table(count: int, seed: int) -> pa.Table:
    """Returns `count` events as a raw stream stores them."""
    drawn = np.random.default_rng(seed).integers(0, KEYS, count)
    offsets = np.arange(0, (count + 1) * PAYLOAD_BYTES, PAYLOAD_BYTES, dtype=np.int32)
    payload = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(_random_bytes(count, seed))]
    )
    time = pa.array(np.arange(count) + _START_US, pa.timestamp("us", tz="UTC"))
    key = pa.array(key_texts()).take(pa.array(drawn))
    return pa.table({"key": key, "time": time, "payload": payload})


def rows_for(megabytes: float) -> int:
    """Returns how many events make a table of about `megabytes` MiB."""
    return int(megabytes * (1 << 20) / (PAYLOAD_BYTES + 4 + 8 + 4 + len(key_texts()[0]) + 1))


def _random_bytes(count: int, seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, count * PAYLOAD_BYTES, dtype=np.uint8)
