"""Blobs in an object store: S3 and what speaks its protocol, Azure, Google Cloud Storage. The library is obstore.

Of the store's own promises one is relied on: a PUT in a single part with `If-None-Match: *` makes a whole object or none,
and never overwrites. Requests are repeated here and not in the library, so that time and chance come from our ports.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import obstore
import pyarrow as pa
from obstore.store import AzureStore, GCSStore, S3Store

from anabranch import limits
from anabranch.blobs.address import Address
from anabranch.blobs.port import BlobInfo
from anabranch.blobs.requests import FAILURES, Meaning, Patience, RequestFailed, ask, explain
from anabranch.errors import (
    AlreadyExists,
    BlobMissing,
    CorruptBlob,
    DiskFull,
    Forked,
    InvalidArgument,
    ReadOnlyStore,
    StoreUnavailable,
)
from anabranch.runtime.ports import Runtime

_ALIGN: Final = 64
_process: int | None = None  # in which the library was first used: a child that is forked from it lacks its threads


class ObjectBlobs:
    """`blobs.port.Blobs` in a bucket. Any number of processes may share it. Reading is one copy: into aligned memory.

    Every call asks again until `settings.blob_deadline_s`, an attempt taking at most `settings.blob_request_s`, and
    then raises StoreUnavailable. A put that raised may still have landed, or land later.
    """

    def __init__(self, address: Address, runtime: Runtime) -> None:
        self._address = address
        self._runtime = runtime
        self._store = _open(address, runtime)
        self._found = False  # whether the bucket has been seen: a missing object may also be a missing bucket

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        """See the port."""
        views = [memoryview(chunk).cast("B") for chunk in chunks if len(memoryview(chunk))]
        patience = Patience(self._runtime)
        unknown = False  # whether an earlier attempt may have landed
        while True:
            try:
                obstore.put(self._store, key, views or b"", mode="create", use_multipart=False)
                self._found = True
                return
            except FAILURES as exc:
                failed = explain(exc)
            if failed.meaning is Meaning.TAKEN:
                size = self.size(key)
                if size is not None:
                    if unknown and self._is_ours(key, size, views):
                        return
                    raise AlreadyExists(f"blob {key} exists already") from failed
                # Two wrote at once, and the store turned both away: nobody has the key yet.
            elif failed.meaning is Meaning.PASSING:
                unknown = True
            else:
                raise self._error(failed, f"blob {key} can't be written", writing=True)
            if not patience.again():
                raise self._error(failed, f"blob {key} can't be written", writing=True)

    def _is_ours(self, key: str, size: int, views: Sequence[memoryview]) -> bool:
        """True if the blob holds what was put: then an attempt without an answer has made it."""
        if size != sum(map(len, views)):
            return False
        there, at = self.get(key), 0
        for view in views:
            if not there.slice(at, len(view)).equals(pa.py_buffer(view)):
                return False
            at += len(view)
        return True

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See the port."""
        if length is not None and offset + length > offset:
            return self._range(key, offset, offset + length)
        size = self.size(key)
        if size is None:
            raise BlobMissing(key)
        stop = size if length is None else offset
        if offset > size:
            raise CorruptBlob(key, f"it holds {size} bytes, {offset} were expected")
        return pa.py_buffer(b"") if stop == offset else self._range(key, offset, stop)

    def _range(self, key: str, start: int, stop: int) -> pa.Buffer:
        """The bytes `start <= i < stop`; several parts at a time where they are many."""
        whole = pa.allocate_buffer(stop - start)
        target = memoryview(whole).cast("B")

        def part(low: int) -> None:
            high = min(low + limits.BLOB_PART_BYTES, stop)
            data = self._ask(
                lambda: obstore.get_range(self._store, key, start=low, end=high),
                f"blob {key} can't be read",
                lambda failed: _unread(key, failed, high),
            )
            if len(data) != high - low:
                raise CorruptBlob(key, f"it ends before byte {high}, which was expected")
            target[low - start : high - start] = memoryview(data).cast("B")

        _together(self._runtime, part, range(start, stop, limits.BLOB_PART_BYTES))
        return whole

    def size(self, key: str) -> int | None:
        """See the port."""
        try:
            return int(
                self._ask(
                    lambda: obstore.head(self._store, key),
                    f"blob {key} can't be looked up",
                    lambda failed: BlobMissing(key) if failed.meaning is Meaning.MISSING else None,
                )["size"]
            )
        except BlobMissing:
            return None

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """See the port. A page a request, so a caller may stop early. Raises StoreUnavailable where the store lists
        out of order, as S3's directory buckets do: the collector could not tell where to stop."""
        folder, last = prefix.rpartition("/")[0] or None, ""
        pages: Iterator[Any] | None = None

        def page() -> Any:
            nonlocal pages
            if pages is None:
                pages = iter(obstore.list(self._store, folder, offset=last or None, chunk_size=limits.BLOB_PAGE_ROWS))
            try:
                return next(pages, ())
            except Exception:
                pages = None  # asked again, it goes on behind the last key
                raise

        while found := self._ask(page, "its blobs can't be listed"):
            for entry in found:
                key = entry["path"]
                if key <= last:
                    raise StoreUnavailable(f"{self._address.shown} lists its keys out of order: {last}, then {key}")
                last = key
                if key.startswith(prefix):
                    yield BlobInfo(key, entry["size"])

    def delete(self, key: str) -> None:
        """See the port."""
        try:
            self._ask(
                lambda: obstore.delete(self._store, key),
                f"blob {key} can't be removed",
                lambda failed: BlobMissing(key) if failed.meaning is Meaning.MISSING else None,
                writing=True,
            )
        except BlobMissing:
            return

    def clear(self, below: re.Pattern[str]) -> None:
        """Remove every blob whose key begins with a match, in no order; no part of the port. What comes meanwhile may stay. Raises
        as `delete`."""
        listed = self._ask(
            lambda: [entry["path"] for page in obstore.list(self._store) for entry in page],
            "its blobs can't be listed",
        )
        found = [key for key in listed if below.match(key)]
        for first in range(0, len(found), limits.BLOB_PAGE_ROWS):
            some = found[first : first + limits.BLOB_PAGE_ROWS]
            self._ask(partial(obstore.delete, self._store, some), "blobs can't be removed", writing=True)

    def path(self, key: str) -> str:
        """See the port. The address without its options: an engine brings its own way to the store."""
        return f"{self._address.shown}/{key}"

    def close(self) -> None:
        """See the port. Connections end with their last user."""

    def _ask(
        self,
        request: Callable[[], Any],
        what: str,
        error: Callable[[RequestFailed], Exception | None] = lambda failed: None,
        *,
        writing: bool = False,
    ) -> Any:
        """The answer to a request. `error` may give a failure a meaning of its own."""
        try:
            answer = ask(self._runtime, request)
        except RequestFailed as failed:
            known = error(failed)
            if isinstance(known, BlobMissing):
                self._find_bucket()
            if known is None:
                raise self._error(failed, what, writing=writing) from failed
            raise known from failed
        self._found = True
        return answer

    def _find_bucket(self) -> None:
        """Raise StoreUnavailable if it is the bucket that is missing, which the answer to a HEAD does not tell."""
        if not self._found:
            self._ask(lambda: next(obstore.list(self._store, chunk_size=1), []), "its blobs can't be listed")

    def _error(self, failed: RequestFailed, what: str, *, writing: bool) -> StoreUnavailable:
        place = self._address.shown
        message = f"{what}: {place}: {failed.said}"
        match failed.meaning:
            case Meaning.NO_BUCKET | Meaning.MISSING:
                error = StoreUnavailable(f"{what}: there is no bucket '{self._address.bucket}' ({place})")
            case Meaning.FORBIDDEN:
                refused = f"{message}; the credentials of the environment do not allow it"
                error = ReadOnlyStore(refused) if writing else StoreUnavailable(refused)
            case Meaning.FULL:
                error = DiskFull(message)
            case _:
                error = StoreUnavailable(message)
        error.__cause__ = failed
        return error


def _unread(key: str, failed: RequestFailed, stop: int) -> Exception | None:
    if failed.meaning is Meaning.MISSING:
        return BlobMissing(key)
    if failed.meaning is Meaning.RANGE:
        return CorruptBlob(key, f"it ends before byte {stop}, which was expected")
    return None


def _together(runtime: Runtime, work: Callable[[int], None], items: Sequence[int]) -> None:
    """Do the work for all items, `limits.BLOB_PARTS_MAX` at a time. The first error is raised once all have ended."""
    left = iter(items)
    lock = runtime.tasks.lock()
    errors: list[Exception] = []

    def go_on() -> None:
        while not errors:
            with lock:
                item = next(left, None)
            if item is None:
                return
            try:
                work(item)
            except Exception as exc:
                errors.append(exc)

    helpers = [runtime.tasks.spawn("blob-part", go_on) for _ in range(min(len(items), limits.BLOB_PARTS_MAX) - 1)]
    go_on()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]


def _open(address: Address, runtime: Runtime) -> S3Store | AzureStore | GCSStore:
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise Forked(
            f"{address.shown} can't be opened: an object store was in use before this process was forked, and the threads "
            "of its client are not here; have multiprocessing start processes by 'spawn' or 'forkserver'"
        )
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=runtime.settings.blob_request_s),
        "connect_timeout": timedelta(seconds=min(limits.BLOB_CONNECT_S, runtime.settings.blob_request_s)),
    }
    if address.allow_http:
        client["allow_http"] = True
    if address.ca is not None:
        try:
            client["root_certificate"] = Path(address.ca).read_bytes()
        except OSError as exc:
            raise InvalidArgument(f"the certificates in {address.ca} can't be read: {exc.strerror}") from exc
    config: dict[str, Any] = {}
    once: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=runtime.settings.blob_request_s)}
    common: dict[str, Any] = {"prefix": address.prefix or None, "client_options": client, "retry_config": once}
    try:
        match address.kind:
            case "s3":
                config |= {"endpoint": address.endpoint, "region": address.region}
                config |= {"virtual_hosted_style_request": address.virtual_hosted or None}
                return S3Store(address.bucket, config=_given(config), **common)
            case "az":
                config |= {"endpoint": address.endpoint, "account_name": address.account}
                return AzureStore(address.bucket, config=_given(config), **common)
            case _:
                config |= {"base_url": address.endpoint}
                return GCSStore(address.bucket, config=_given(config), **common)
    except Exception as exc:
        # The library's words may quote what the environment holds.
        raise InvalidArgument(f"{address.shown} can't be opened: its options or the environment's are wrong") from (
            RequestFailed(Meaning.REFUSED, type(exc).__name__)
        )


def _given(config: dict[str, Any]) -> Any:
    return {name: value for name, value in config.items() if value is not None}
