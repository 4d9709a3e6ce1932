"""Redis streams through redis-py: pipelined XADD, and XREAD."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from typing import Any

from bench.peers.peer import NotInstalled, Peer, free_port

_PIPELINE = 1_000  # commands sent together; 100 and 10,000 were slower
_PAGE = 5_000  # entries per XREAD


class Redis(Peer):
    """One stream, entries of two fields."""

    name = "redis"
    durability = "AOF everysec: an acknowledged event may be lost for about a second"
    write_style = f"redis-py, pipelines of {_PIPELINE:,} XADD"
    read_style = f"redis-py, XREAD COUNT {_PAGE:,}"

    def start(self) -> None:
        """See `Peer`."""
        command = shutil.which("redis-server")
        if command is None:
            raise NotInstalled("no redis-server on the PATH")
        try:
            import redis
        except ImportError as exc:
            raise NotInstalled("no redis client: pip install redis") from exc
        port = free_port()
        settings = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
        }
        self._launch([command, *(word for name, value in settings.items() for word in (f"--{name}", value))])
        self._client: Any = redis.Redis(host="127.0.0.1", port=port)
        self._until(self._client.ping)

    def stop(self) -> None:
        """See `Peer`."""
        self._client.close()

    def version(self) -> str:
        """See `Peer`."""
        return f"Redis {self._client.info('server')['redis_version']}"

    def write(self, bodies: Sequence[bytes], keys: Sequence[str]) -> float:
        """See `Peer`."""
        self._client.delete("events")
        begun = time.perf_counter()
        pipeline = self._client.pipeline(transaction=False)
        for number, (body, key) in enumerate(zip(bodies, keys, strict=True), 1):
            pipeline.xadd("events", {"k": key, "p": body})
            if number % _PIPELINE == 0:
                pipeline.execute()
        pipeline.execute()
        return time.perf_counter() - begun

    def read(self) -> tuple[int, float]:
        """See `Peer`."""
        count, last = 0, b"0"
        begun = time.perf_counter()
        while found := self._client.xread({"events": last}, count=_PAGE):
            # RESP2 returns pairs, RESP3 a mapping whose values hold one more list.
            entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
            for _, fields in entries:
                if fields[b"k"] is not None and fields[b"p"] is not None:
                    count += 1
            last = entries[-1][0]
        return count, time.perf_counter() - begun
