"""Blobs in an object store: S3 and compatible servers, Azure, Google Cloud Storage. Uses the library obstore.

The code relies on one guarantee of the object store: a PUT in a single part with `If-None-Match: *` creates a whole
object or none, and never overwrites. Requests are retried here and not in the library, so that time and randomness come
from the `Runtime`.
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
from anabranch.blobs.address import ObjectStoreAddress
from anabranch.blobs.keys import check_path, check_prefix
from anabranch.blobs.port import BlobInfo
from anabranch.blobs.requests import FAILURES, FailureKind, RequestFailed, explain, request_retries, with_retries
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
# The id of the process in which the library was first used: a forked child lacks the library's threads.
_process: int | None = None


class ObjectBlobs:
    """`blobs.port.Blobs` in a bucket. Any number of processes may share it. Reading copies once, into aligned memory.

    Every call retries for `settings.blob_deadline_s`, with attempts of at most `settings.blob_request_s`, and then
    raises StoreUnavailable. A put that raised may still have succeeded, or may succeed later.
    """

    def __init__(self, address: ObjectStoreAddress, runtime: Runtime) -> None:
        self._address = address
        self._runtime = runtime
        self._store = _open(address, runtime)
        # True once the bucket is known to exist. Until then, a missing object may also mean a missing bucket.
        self._bucket_exists = False

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        check_path(key)
        views = [memoryview(chunk).cast("B") for chunk in chunks if len(memoryview(chunk))]
        retries = request_retries(self._runtime)
        may_exist = False  # whether an earlier attempt may have succeeded
        while True:
            try:
                obstore.put(self._store, key, views or b"", mode="create", use_multipart=False)
                self._bucket_exists = True
                return
            except FAILURES as exc:
                failed = explain(exc)
            if failed.kind is FailureKind.TAKEN:
                size = self.size(key)
                if size is not None:
                    if may_exist and self._is_ours(key, size, views):
                        return
                    raise AlreadyExists(f"blob {key} already exists") from failed
                # Two clients wrote at once and the store refused both: the key is still free.
            elif failed.kind is FailureKind.TRANSIENT:
                may_exist = True
            else:
                raise self._error(failed, f"blob {key} can't be written", writing=True)
            if not retries.again(failed):
                raise self._error(failed, f"blob {key} can't be written", writing=True)

    def _is_ours(self, key: str, size: int, views: Sequence[memoryview]) -> bool:
        """True if the blob holds what was put: then an earlier attempt without an answer has succeeded."""
        if size != sum(map(len, views)):
            return False
        stored, at = self.get(key), 0
        for view in views:
            if not stored.slice(at, len(view)).equals(pa.py_buffer(view)):
                return False
            at += len(view)
        return True

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        check_path(key)
        if length is not None and offset + length > offset:
            return self._range(key, offset, offset + length)
        size = self.size(key)
        if size is None:
            raise BlobMissing(key)
        stop = size if length is None else offset
        if offset > size:
            raise CorruptBlob(key, f"expected {offset} bytes, found {size}")
        return pa.py_buffer(b"") if stop == offset else self._range(key, offset, stop)

    def _range(self, key: str, start: int, stop: int) -> pa.Buffer:
        """The bytes `start <= i < stop`, fetched in concurrent parts if they are many."""
        whole = pa.allocate_buffer(stop - start)
        target = memoryview(whole).cast("B")

        def part(low: int) -> None:
            high = min(low + limits.BLOB_PART_BYTES, stop)
            data = self._request(
                lambda: obstore.get_range(self._store, key, start=low, end=high),
                f"blob {key} can't be read",
                lambda failed: _read_error(key, failed, high),
            )
            if len(data) != high - low:
                raise CorruptBlob(key, f"it ends before byte {high}, which was expected")
            target[low - start : high - start] = memoryview(data).cast("B")

        _run_all(self._runtime, part, range(start, stop, limits.BLOB_PART_BYTES))
        return whole

    def size(self, key: str) -> int | None:
        check_path(key)
        try:
            return int(
                self._request(
                    lambda: obstore.head(self._store, key),
                    f"blob {key} can't be looked up",
                    lambda failed: BlobMissing(key) if failed.kind is FailureKind.MISSING else None,
                )["size"]
            )
        except BlobMissing:
            return None

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """See the port. Fetches one page per request, so a caller may stop early. Raises StoreUnavailable if the store
        lists out of order, as S3's directory buckets do: the collector would not know where to stop."""
        folder, last = check_prefix(prefix).rpartition("/")[0] or None, ""
        pages: Iterator[Any] | None = None

        def page() -> Any:
            nonlocal pages
            if pages is None:
                pages = iter(obstore.list(self._store, folder, offset=last or None, chunk_size=limits.BLOB_PAGE_ROWS))
            try:
                return next(pages, ())
            except Exception:
                pages = None  # a retry continues after the last key
                raise

        while found := self._request(page, "its blobs can't be listed"):
            for entry in found:
                key = entry["path"]
                if key <= last:
                    # Another program's marker for a folder, `a/`, is listed as `a`, but after `a-b`.
                    if not entry["size"]:
                        continue
                    raise StoreUnavailable(f"{self._address.shown} lists its keys out of order: {last}, then {key}")
                last = key
                if key.startswith(prefix):
                    yield BlobInfo(key, entry["size"])

    def delete(self, key: str) -> None:
        check_path(key)
        try:
            self._request(
                lambda: obstore.delete(self._store, key),
                f"blob {key} can't be removed",
                lambda failed: BlobMissing(key) if failed.kind is FailureKind.MISSING else None,
                writing=True,
            )
        except BlobMissing:
            return

    def replace(self, key: str, content: bytes) -> None:
        """Write a blob, and replace the blob of this key if there is one. A call that raised may still succeed later.
        Raises as `put` does. Not part of the port."""
        check_path(key)
        self._request(
            lambda: obstore.put(self._store, key, content, use_multipart=False),
            f"blob {key} can't be written",
            writing=True,
        )

    def clear(self, below: re.Pattern[str]) -> None:
        """Remove every blob whose key begins with a match of `below`, in any order. Blobs written meanwhile may stay.
        Raises as `delete` does. Not part of the port."""
        listed = self._request(
            lambda: [entry["path"] for page in obstore.list(self._store) for entry in page],
            "its blobs can't be listed",
        )
        found = [key for key in listed if below.match(key)]
        for first in range(0, len(found), limits.BLOB_PAGE_ROWS):
            some = found[first : first + limits.BLOB_PAGE_ROWS]
            self._request(partial(obstore.delete, self._store, some), "blobs can't be removed", writing=True)

    def path(self, key: str) -> str:
        """See the port. The URL has no options: an engine configures its own access to the store."""
        return f"{self._address.shown}/{check_path(key)}"

    def close(self) -> None:
        """See the port. Connections are closed when nothing refers to them any more."""

    def _request(
        self,
        request: Callable[[], Any],
        what: str,
        error: Callable[[RequestFailed], Exception | None] = lambda failed: None,
        *,
        writing: bool = False,
    ) -> Any:
        """Send a request, with retries, and return its answer. `error` may translate a failure into another error."""
        try:
            answer = with_retries(self._runtime, request)
        except RequestFailed as failed:
            translated = error(failed)
            if isinstance(translated, BlobMissing):
                self._find_bucket()
            if translated is None:
                raise self._error(failed, what, writing=writing) from failed
            raise translated from failed
        self._bucket_exists = True
        return answer

    def _find_bucket(self) -> None:
        """Raise StoreUnavailable if the bucket is missing, which the answer to a HEAD request does not say."""
        if not self._bucket_exists:
            self._request(lambda: next(obstore.list(self._store, chunk_size=1), []), "its blobs can't be listed")

    def _error(self, failed: RequestFailed, what: str, *, writing: bool) -> StoreUnavailable:
        place = self._address.shown
        message = f"{what}: {place}: {failed.message}"
        match failed.kind:
            case FailureKind.NO_BUCKET | FailureKind.MISSING:
                error = StoreUnavailable(f"{what}: bucket '{self._address.bucket}' not found ({place})")
            case FailureKind.FORBIDDEN:
                refused = f"{message}; the credentials of the environment do not allow it"
                error = ReadOnlyStore(refused) if writing else StoreUnavailable(refused)
            case FailureKind.FULL:
                error = DiskFull(message)
            case _:
                error = StoreUnavailable(message)
        error.__cause__ = failed
        return error


def _read_error(key: str, failed: RequestFailed, stop: int) -> Exception | None:
    if failed.kind is FailureKind.MISSING:
        return BlobMissing(key)
    if failed.kind is FailureKind.RANGE:
        return CorruptBlob(key, f"it ends before byte {stop}, which was expected")
    return None


def _run_all(runtime: Runtime, work: Callable[[int], None], items: Sequence[int]) -> None:
    """Do the work for all items, `limits.BLOB_PARTS_MAX` at a time. Once all have ended, raises the first error."""
    left = iter(items)
    lock = runtime.tasks.lock()
    errors: list[Exception] = []

    def take_items() -> None:
        while not errors:
            with lock:
                item = next(left, None)
            if item is None:
                return
            try:
                work(item)
            except Exception as exc:
                errors.append(exc)

    helpers = [runtime.tasks.spawn("blob-part", take_items) for _ in range(min(len(items), limits.BLOB_PARTS_MAX) - 1)]
    take_items()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]


def _open(address: ObjectStoreAddress, runtime: Runtime) -> S3Store | AzureStore | GCSStore:
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
    no_retries: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=runtime.settings.blob_request_s)}
    common: dict[str, Any] = {"prefix": address.prefix or None, "client_options": client, "retry_config": no_retries}
    try:
        match address.kind:
            case "s3":
                config |= {"endpoint": address.endpoint, "region": address.region}
                config |= {"virtual_hosted_style_request": address.virtual_hosted or None}
                return S3Store(address.bucket, config=_without_none(config), **common)
            case "az":
                config |= {"endpoint": address.endpoint, "account_name": address.account}
                return AzureStore(address.bucket, config=_without_none(config), **common)
            case _:
                config |= {"base_url": address.endpoint}
                return GCSStore(address.bucket, config=_without_none(config), **common)
    except Exception as exc:
        # The library's message may quote values from the environment.
        raise InvalidArgument(f"{address.shown} can't be opened: its options or the environment's are wrong") from (
            RequestFailed(FailureKind.REFUSED, type(exc).__name__)
        )


def _without_none(config: dict[str, Any]) -> Any:
    return {name: value for name, value in config.items() if value is not None}
