"""The messages between a host and a driver: one JSON object a line, by the driver's standard input and output.

| from the host | |
|---|---|
| `{"store": {…}, "conf": {…}, "warm": bool, "folder": path}` | first: the addresses of the store, Spark's settings, whether to warm up, and the folder of its files, which it removes at its end |
| `{"run": name, "epoch": n, "change": n}` | run the query, which this host holds in this epoch, as of this change |
| `{"stop": name}` | end it once its micro-batch is done |
| `{"drop": name}` | end it at once: it was lost to another host |
| `{"follow": name, "change": n}` | be the hot standby of the query as of this change; a later `run` of it takes over |
| `{"unfollow": name}` | end the hot standby, and remove its checkpoints |
| `{"answer": id}` | answer this question about SQL |
| `{"exit": true}` | end, now that nothing runs |
| end of file | the host is gone: end at once |

| from the driver | |
|---|---|
| `{"event": "ready", "on_cluster": bool}` | Spark has started, here or on a cluster |
| `{"event": "started", "query": name, "epoch": n, "change": n, "version": n}` | it runs the query as of this change |
| `{"event": "ended", "query": name, "epoch": n, "how": how, "error": text or null}` | it no longer runs it |
| `{"event": "following", "query": name, "change": n, "ready": bool}` | whether the hot standby could take over now, each time that this changes |
| `{"event": "unfollowed", "query": name, "change": n, "how": how, "error": text}` | the hot standby has ended without being asked to |
| `{"event": "ending", "why": text}` | it ends at once, for this reason |
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, get_args

__all__ = ["Ended", "MessagePipe", "parse_line"]

Ended: TypeAlias = Literal["stopped", "refused", "failed", "crashed", "lost"]
"""How a run ended: as asked; because the query can't run as it is; by a failure; because a Python worker or an executor of
Spark has ended, which says nothing about the query; because another host has the query, or it was changed before it began."""

ENDINGS: Final = get_args(Ended)


class MessagePipe:
    """Writes messages to a pipe. Thread-safe; if the pipe has no reader any more, messages are dropped without an error."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, **message: Any) -> None:
        """Write one message."""
        with self._lock:
            try:
                self._pipe.write(json.dumps(message) + "\n")
                self._pipe.flush()
            except (OSError, ValueError):  # the supervisor of the other process notices its end
                return

    def close(self) -> None:
        """Close the pipe."""
        with self._lock, suppress(OSError):
            self._pipe.close()


def parse_line(line: str) -> dict[str, Any]:
    """A message; {} for a line that is not a message, such as the output of a library."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
