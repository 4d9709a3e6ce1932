"""Explains why a task can't reach the store: on which machine, and what is missing there.

The driver has opened the store before any task runs. So an error in a task comes from a difference between the two
machines: a folder that is not mounted, or credentials or keys that the worker's environment lacks.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import TaskContext

from anabranch.blobs.address import is_remote, parse
from anabranch.errors import (
    InvalidArgument,
    KeyMissing,
    KeysUnreadable,
    StoreNotFound,
    StoreUnavailable,
    Unauthenticated,
    WrongKey,
)
from anabranch.spark.stores import BrokerAccess, StorePlaces

__all__ = ["WorkerAccess"]

# The variables in which the client of each object store finds credentials. Only names: values never leave a process.
_CREDENTIALS: Final = {
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    "az": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_ID"),
    "gs": ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
}
_EVERYWHERE: Final = "every machine of the job must see it under this path, or the store must be in PostgreSQL and S3"


class WorkerAccess:
    """Translates store errors in tasks. Created on the driver; records which credential variables are set there."""

    def __init__(self, *places: StorePlaces) -> None:
        self._brokers = next((one.url for one in places if isinstance(one, BrokerAccess)), None)
        names = {name for one in places for name in _variables(one)}
        self._variables = tuple(sorted(name for name in names if os.environ.get(name)))

    @contextmanager
    def explained(self) -> Iterator[None]:
        """In a task, convert errors of reaching the store to StoreUnavailable, which names the machine and what it
        lacks. On the driver errors stay unchanged."""
        try:
            yield
        except (StoreNotFound, StoreUnavailable, InvalidArgument, KeyMissing, WrongKey, Unauthenticated) as exc:
            if TaskContext.get() is None:
                raise
            message = self._message(exc)
            if message is None:
                raise
            raise StoreUnavailable(message) from exc

    def _message(self, exc: Exception) -> str | None:
        machine = f"the Spark worker on {socket.gethostname()}"
        if isinstance(exc, StoreNotFound):
            return f"{machine} does not see the store's folder {exc.location}: {_EVERYWHERE}"
        if isinstance(exc, (KeyMissing, WrongKey, KeysUnreadable)):
            return f"{machine} does not have the store's keys: {exc}"
        if isinstance(exc, InvalidArgument):
            return None
        missing = [name for name in self._variables if not os.environ.get(name)]
        if not missing:
            if self._brokers is None or not isinstance(exc, StoreUnavailable):
                return None
            return f"{machine} does not reach the broker {self._brokers}: {exc}"
        return f"{machine} has no {', '.join(missing)} in its environment, from which the driver has its credentials: {exc}"


def _variables(places: StorePlaces) -> tuple[str, ...]:
    """The variables that may hold the credentials for these places."""
    if isinstance(places, BrokerAccess):
        return ("ANABRANCH_TOKEN",) if places.token_file is None else ()
    remote = [each for each in (places.blobs, places.history) if each is not None and is_remote(each)]
    return tuple(name for each in remote for name in _CREDENTIALS.get(parse(each).kind, ()))
