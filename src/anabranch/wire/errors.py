"""The one table of errors that Flight, gRPC and HTTP share: each class's stable code and its statuses.

An error crosses the network as its code, its message and its fields, so that a client raises the class that the store
raised."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from anabranch import errors
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.wire.values import from_json, to_json

INTERNAL: Final = "internal"
TIMEOUT: Final = "timeout"


class Status(NamedTuple):
    """How an error is answered: `code` never changes for a class, `http` is a status, `grpc` the name of one."""

    code: str
    http: int
    grpc: str


_INVALID = (400, "INVALID_ARGUMENT")
_NOT_FOUND = (404, "NOT_FOUND")
_EXISTS = (409, "ALREADY_EXISTS")
_STATE = (409, "FAILED_PRECONDITION")
_ABORTED = (409, "ABORTED")
_GONE = (410, "OUT_OF_RANGE")
_CORRUPT = (500, "DATA_LOSS")
_UNAVAILABLE = (503, "UNAVAILABLE")

_TABLE: Final[Mapping[type[BaseException], Status]] = {
    kind: Status(code, *answer)
    for kind, code, answer in (
        (errors.AlreadyExists, "already_exists", _EXISTS),
        (errors.AnabranchError, "error", (500, "UNKNOWN")),
        (errors.AppendRefused, "append_refused", _STATE),
        (errors.AppendUncertain, "append_uncertain", (500, "UNKNOWN")),
        (errors.AttachmentUnconfirmed, "attachment_unconfirmed", _STATE),
        (errors.BlobExpired, "blob_expired", _ABORTED),
        (errors.BlobMissing, "blob_missing", _CORRUPT),
        (errors.Closed, "closed", _STATE),
        (errors.ConditionFailed, "condition_failed", (412, "FAILED_PRECONDITION")),
        (errors.Conflict, "conflict", _ABORTED),
        (errors.CorruptArchive, "corrupt_archive", _CORRUPT),
        (errors.CorruptBlob, "corrupt_blob", _CORRUPT),
        (errors.CorruptCatalog, "corrupt_catalog", _CORRUPT),
        (errors.CorruptStore, "corrupt_store", _CORRUPT),
        (errors.DiskFull, "disk_full", (507, "RESOURCE_EXHAUSTED")),
        (errors.EventNotFound, "event_not_found", _NOT_FOUND),
        (errors.Fenced, "fenced", _STATE),
        (errors.Forked, "forked", (500, "INTERNAL")),
        (errors.FormatTooNew, "format_too_new", (501, "UNIMPLEMENTED")),
        (errors.GroupNotFound, "group_not_found", _NOT_FOUND),
        (errors.GroupStreamDeleted, "group_stream_deleted", _NOT_FOUND),
        (errors.InvalidArgument, "invalid_argument", _INVALID),
        (errors.InvalidCut, "invalid_cut", _INVALID),
        (errors.InvalidKey, "invalid_key", _INVALID),
        (errors.InvalidName, "invalid_name", _INVALID),
        (errors.InvalidPointer, "invalid_pointer", _INVALID),
        (errors.InvalidSql, "invalid_sql", _INVALID),
        (errors.JobNotFound, "job_not_found", _NOT_FOUND),
        (errors.JobRunning, "job_running", _STATE),
        (errors.JobStopped, "job_stopped", _STATE),
        (errors.JobUnconfirmed, "job_unconfirmed", _STATE),
        (errors.KeyMissing, "key_missing", _STATE),
        (errors.KeysUnreadable, "keys_unreadable", _INVALID),
        (errors.LeaseExpired, "lease_expired", _ABORTED),
        (errors.MissingExtra, "missing_extra", (501, "UNIMPLEMENTED")),
        (errors.ModuleFailed, "module_failed", (422, "FAILED_PRECONDITION")),
        (errors.FunctionFailed, "function_failed", (422, "FAILED_PRECONDITION")),
        (errors.ModuleNotFound, "module_not_found", _NOT_FOUND),
        (errors.NoResultsYet, "no_results_yet", _STATE),
        (errors.NotFound, "not_found", _NOT_FOUND),
        (errors.NotRemote, "not_remote", (501, "UNIMPLEMENTED")),
        (errors.OutOfSequence, "out_of_sequence", _STATE),
        (errors.PermissionDenied, "permission_denied", (403, "PERMISSION_DENIED")),
        (errors.PipelineFailed, "pipeline_failed", _STATE),
        (errors.PipelineNotFound, "pipeline_not_found", _NOT_FOUND),
        (errors.PipelineRunning, "pipeline_running", _STATE),
        (errors.QueryLimitExceeded, "query_limit_exceeded", (422, "RESOURCE_EXHAUSTED")),
        (errors.QueryNotFound, "query_not_found", _NOT_FOUND),
        (errors.TemplateNotFound, "template_not_found", _NOT_FOUND),
        (errors.RateLimited, "rate_limited", (429, "RESOURCE_EXHAUSTED")),
        (errors.ReadOnlyStore, "read_only_store", _UNAVAILABLE),
        (errors.ReaderNotInGroup, "reader_not_in_group", _ABORTED),
        (errors.RequestMismatch, "request_mismatch", (422, "INVALID_ARGUMENT")),
        (errors.SchemaMismatch, "schema_mismatch", (422, "INVALID_ARGUMENT")),
        (errors.ScopeExists, "scope_exists", _EXISTS),
        (errors.ScopeNotEmpty, "scope_not_empty", _STATE),
        (errors.ScopeNotFound, "scope_not_found", _NOT_FOUND),
        (errors.ScopeRenamed, "scope_renamed", _NOT_FOUND),
        (errors.SegmentSealed, "segment_sealed", _STATE),
        (errors.StoreBusy, "store_busy", _UNAVAILABLE),
        (errors.StoreNotFound, "store_not_found", _NOT_FOUND),
        (errors.StoreUnavailable, "store_unavailable", _UNAVAILABLE),
        (errors.StreamExists, "stream_exists", _EXISTS),
        (errors.StreamHasPipeline, "stream_has_pipeline", _STATE),
        (errors.StreamNotFound, "stream_not_found", _NOT_FOUND),
        (errors.StreamRenamed, "stream_renamed", _NOT_FOUND),
        (errors.StreamSealed, "stream_sealed", _STATE),
        (errors.TooLarge, "too_large", (413, "INVALID_ARGUMENT")),
        (errors.TransactionAborted, "transaction_aborted", _ABORTED),
        (errors.TransactionNotFound, "transaction_not_found", _NOT_FOUND),
        (errors.Truncated, "truncated", _GONE),
        (errors.Unauthenticated, "unauthenticated", (401, "UNAUTHENTICATED")),
        (errors.WriterUnknown, "writer_unknown", _STATE),
        (errors.WrongKey, "wrong_key", _STATE),
        (TimeoutError, TIMEOUT, (504, "DEADLINE_EXCEEDED")),
    )
}
_BY_CODE: Final = {status.code: kind for kind, status in _TABLE.items()}
_INTERNAL: Final = Status(INTERNAL, 500, "INTERNAL")
_MESSAGE_CHARS_MAX: Final = 500  # the message is sent twice, and gRPC takes 8 KiB of headers, or more
_HEADER_BYTES_MAX: Final = 4096
_INTERNAL_MESSAGE: Final = "the broker failed; its log says why"


def status_of(error: BaseException) -> Status:
    """How the error is answered, by the nearest class of the table; `internal` for anything that the store does not
    raise on purpose."""
    for kind in type(error).__mro__:
        if kind in _TABLE:
            return _TABLE[kind]
    return _INTERNAL


def error_to_json(error: BaseException) -> dict[str, Any]:
    """The error as `{"code": …, "message": …, "fields": {…}}`. The message of an unexpected error is not sent: it may
    hold anything."""
    status = status_of(error)
    if status is _INTERNAL:
        return {"code": INTERNAL, "message": _INTERNAL_MESSAGE, "fields": {}}
    fields: dict[str, Any] = {}
    for name, value in vars(error).items():
        if not name.startswith("_"):
            try:
                fields[name] = to_json(value)
            except InvalidArgument:  # for this process alone, such as a callback
                continue
    return {"code": status.code, "message": str(error), "fields": fields}


def error_for_headers(error: BaseException) -> dict[str, Any]:
    """`error_to_json` for headers, which are limited: a long message is cut, and large fields are left out."""
    found = error_to_json(error)
    message = found["message"]
    if len(message) > _MESSAGE_CHARS_MAX:
        message = f"{message[:_MESSAGE_CHARS_MAX]} …"
    found = {**found, "message": message}
    return found if len(compact(found)) <= _HEADER_BYTES_MAX else {**found, "fields": {}}


def compact(found: Mapping[str, Any]) -> bytes:
    """The shortest JSON. ASCII: in a header, gRPC writes any other byte as three."""
    return json.dumps(found, separators=(",", ":")).encode()


def error_from_json(value: Any) -> AnabranchError | TimeoutError:
    """The error that a broker sent: of the same class, with the same message and fields. A code that this release does
    not know, and anything malformed, becomes a plain AnabranchError."""
    if not isinstance(value, dict) or not isinstance(value.get("message"), str):
        return AnabranchError("the broker answered with an error that can't be read")
    code = value.get("code")
    kind = _BY_CODE.get(code, AnabranchError) if isinstance(code, str) else AnabranchError
    if kind is TimeoutError:
        return TimeoutError(value["message"])
    assert issubclass(kind, AnabranchError)
    error = kind.__new__(kind, value["message"])
    error.args = (value["message"],)
    fields = value.get("fields")
    if isinstance(fields, dict):
        error.__dict__.update(_fields(fields))
    return error


def _fields(found: Mapping[Any, Any]) -> dict[str, Any]:
    fields = {}
    for name, value in found.items():
        if isinstance(name, str) and name.isidentifier() and not name.startswith("_"):
            try:
                fields[name] = from_json(value)
            except InvalidArgument:
                continue
    return fields
