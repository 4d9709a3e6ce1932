"""The host of deployed queries as a part of a broker (the setting `queries`): what `anabranch queries serve` runs, in a
process of the broker's own."""

from __future__ import annotations

import os
import socket
import threading

from anabranch.errors import AnabranchError
from anabranch.spark.queries.host import QueryHost
from anabranch.spark.queries.prepare import preparing_spark
from anabranch.spark.session.home import ensure_home
from anabranch.spark.session.java import ensure_java
from anabranch.store import Store


class QueryHostFrontEnd:
    """Runs the queries of a store, in a thread."""

    name = "queries"

    def __init__(self, store: Store, *, spares: int) -> None:
        self._store = store
        self._spares = spares
        self._stopped = threading.Event()
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="query-host", daemon=True)

    def start(self) -> str:
        """Returns the name of the host, as queries show it. Raises MissingExtra without Spark or Java."""
        ensure_java()
        ensure_home()
        self._thread.start()
        return f"{os.getpid()}@{socket.gethostname()}"

    def failed(self) -> str | None:
        """Why it has ended by itself."""
        return self._problem

    def drain(self, seconds: float) -> bool:
        """Let the micro-batches in progress finish, and give the queries back."""
        self._stopped.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """The drivers end with this process, and another host takes the queries once their leases have run out."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            with preparing_spark():
                QueryHost(self._store, spares=self._spares).run(self._stopped.is_set)
        except AnabranchError as exc:
            self._problem = str(exc)
        except BaseException as exc:
            self._problem = repr(exc)
            raise
