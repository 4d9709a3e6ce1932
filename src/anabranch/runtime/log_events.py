"""The log records that an operator needs, all in one table: each kind with its logger, level, text and fields.

The store logs through the standard module `logging`, to one logger per package, such as `anabranch.log`. A record
carries the name of its kind as the attribute `event`, and each of its fields as an attribute of that name, so that a
structured formatter finds them. The application chooses handlers and levels: without a handler, nothing is printed.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["LogEvent"]

logging.getLogger("anabranch").addHandler(logging.NullHandler())

_FIELD: Final = re.compile(r"%\((\w+)\)")
_DEBUG, _INFO, _WARNING, _ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A kind of record of the package `package`. `text` names the fields, as `%(stream)s`."""

    package: str
    name: str
    level: int
    text: str

    @property
    def logger(self) -> str:
        """The name of the event's logger."""
        return f"anabranch.{self.package}"

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the event's fields."""
        return tuple(_FIELD.findall(self.text))

    def __call__(self, *, quiet: bool = False, traceback: BaseException | None = None, **fields: Any) -> None:
        """Log a record with these fields, and the traceback of an error if one is given. `quiet`: at the level DEBUG,
        for a repetition of what was just reported."""
        logger = logging.getLogger(self.logger)
        level = _DEBUG if quiet else self.level
        if logger.isEnabledFor(level):
            logger.log(level, self.text, fields, exc_info=traceback, extra={"event": self.name, **fields}, stacklevel=2)


# any package

BACKGROUND_FAILED: Final = LogEvent(
    "runtime", "background_failed", _WARNING, "%(task)s failed and will be tried again in %(pause_s)g s: %(error)s"
)
BACKGROUND_RECOVERED: Final = LogEvent(
    "runtime", "background_recovered", _INFO, "%(task)s works again after %(failures)d failure(s)"
)
BACKGROUND_STUCK: Final = LogEvent(
    "runtime", "background_stuck", _ERROR, "%(task)s has not ended within %(waited_s)g s after it was asked to stop"
)

# catalog and blobs

CATALOG_RETRIED: Final = LogEvent(
    "catalog", "catalog_retried", _WARNING, "the catalog's server failed, trying again in %(pause_s).3g s: %(error)s"
)
CATALOG_CONTENDED: Final = LogEvent(
    "catalog", "catalog_contended", _DEBUG, "a lock of the catalog is taken, trying again in %(pause_s).3g s"
)
TRANSACTION_RETRIED: Final = LogEvent(
    "catalog",
    "transaction_retried",
    _WARNING,
    "the outcome of a transaction is unknown, trying again in %(pause_s).3g s: %(error)s",
)
BLOB_RETRIED: Final = LogEvent(
    "blobs", "blob_retried", _WARNING, "the object store failed, trying again in %(pause_s).3g s: %(error)s"
)

# log

APPEND_UNCERTAIN: Final = LogEvent(
    "log", "append_uncertain", _WARNING, "the outcome of a commit of %(units)d unit(s) is unknown: %(error)s"
)
APPEND_RECOVERED: Final = LogEvent(
    "log",
    "append_recovered",
    _WARNING,
    "the outcome of a commit is known: %(landed)d unit(s) had landed, %(repeated)d were committed again",
)
APPEND_UNRESOLVED: Final = LogEvent(
    "log", "append_unresolved", _ERROR, "the outcome of a commit of %(units)d unit(s) can't be found out: %(error)s"
)
LEASE_LOST: Final = LogEvent(
    "log", "lease_lost", _ERROR, "the lease %(lease)s of %(purpose)s '%(holder)s' ran out before its work was done"
)
PLAN_STALE: Final = LogEvent(
    "log", "plan_stale", _INFO, "blob %(blob)s was compacted and collected since the read was planned; planning again"
)
UPKEEP_FAILED: Final = LogEvent(
    "log",
    "upkeep_failed",
    _WARNING,
    "%(task)s of stream %(stream)s failed %(times)d time(s), and will be tried again in %(pause_s)d s: %(error)s",
)
UPKEEP_RECOVERED: Final = LogEvent("log", "upkeep_recovered", _INFO, "%(task)s of stream %(stream)s works again")
UPKEEP_STEP_FAILED: Final = LogEvent(
    "log", "upkeep_step_failed", _WARNING, "a further step of upkeep failed: %(error)s"
)
UPKEEP_SKIPPED: Final = LogEvent("log", "upkeep_skipped", _WARNING, "not compacted: %(reason)s")

# streams

RETENTION_TRUNCATED: Final = LogEvent(
    "streams", "retention_truncated", _INFO, "retention removed %(events)d events of %(streams)d stream(s)"
)
RETENTION_PASSED_GROUP: Final = LogEvent(
    "streams",
    "retention_passed_group",
    _WARNING,
    "retention of '%(stream)s' has passed reader group '%(group)s', which lags: %(events)d events (%(bytes)d bytes) "
    "that it had not read are gone",
)
STREAMS_SCALED: Final = LogEvent(
    "streams", "streams_scaled", _INFO, "scaling by load: %(scaled)d of %(streams)d streams got other segments"
)
HOLD_NOT_RENEWED: Final = LogEvent(
    "streams", "hold_not_renewed", _WARNING, "the hold on ephemeral stream '%(stream)s' was not renewed: %(error)s"
)
HOLD_LOST: Final = LogEvent(
    "streams", "hold_lost", _ERROR, "ephemeral stream '%(stream)s' is gone, though this process held it"
)

# groups and notifications

READER_LOST: Final = LogEvent(
    "groups", "reader_lost", _ERROR, "reader '%(reader)s' of group '%(group)s' can't go on: %(error)s"
)
LISTENER_FAILED: Final = LogEvent("notifications", "listener_failed", _ERROR, "%(problem)s: %(error)r")

# brokers and their clients

PROCESS_ENDED: Final = LogEvent(
    "server", "process_ended", _ERROR, "%(worker)s has ended with code %(code)d; starting another in %(pause_s).3g s"
)
PROCESS_NOT_STARTED: Final = LogEvent("server", "process_not_started", _ERROR, "%(worker)s did not start: %(error)s")
STORE_NOT_CLOSED: Final = LogEvent("server", "store_not_closed", _ERROR, "the store did not close cleanly: %(error)s")
FLIGHT_FAILED: Final = LogEvent("server", "flight_failed", _ERROR, "a call of Arrow Flight failed: %(error)r")
GRPC_FAILED: Final = LogEvent("server", "grpc_failed", _ERROR, "a gRPC call failed: %(error)r")
REQUEST_FAILED: Final = LogEvent("server", "request_failed", _ERROR, "an HTTP request failed: %(error)r")
SESSION_FAILED: Final = LogEvent(
    "server", "session_failed", _ERROR, "the request '%(verb)s' of a client failed: %(error)r"
)
SESSION_REOPENED: Final = LogEvent(
    "remote", "session_reopened", _INFO, "%(session)s continues on %(place)s after its connection was lost: %(error)s"
)

# jobs

JOB_STARTED: Final = LogEvent("transfer", "job_started", _INFO, "job %(job)s (%(verb)s into '%(target)s') runs here")
JOB_STEP: Final = LogEvent("transfer", "job_step", _DEBUG, "job %(job)s moved %(ranges)d range(s)")
JOB_ENDED: Final = LogEvent("transfer", "job_ended", _INFO, "job %(job)s is %(state)s")
JOB_FAILED: Final = LogEvent("transfer", "job_failed", _ERROR, "job %(job)s failed: %(error)s")

# pipelines

PIPELINE_STARTED: Final = LogEvent(
    "spark", "pipeline_started", _INFO, "pipeline %(pipeline)s %(start)s in this process: generation %(generation)d"
)
PIPELINE_ENDED: Final = LogEvent("spark", "pipeline_ended", _INFO, "pipeline %(pipeline)s has ended")
PIPELINE_FAILED: Final = LogEvent("spark", "pipeline_failed", _ERROR, "pipeline %(pipeline)s failed: %(error)s")
PIPELINE_LATE: Final = LogEvent("spark", "pipeline_late", _WARNING, "pipeline %(pipeline)s: %(warning)s")
SPARK_PATH: Final = LogEvent("spark", "spark_path", _INFO, "the store of %(store)s is used %(way)s: %(reason)s")
QUERY_NOTED: Final = LogEvent("spark", "query_noted", _INFO, "query %(query)s: %(note)s")
HOST_CUT_OFF: Final = LogEvent("spark", "host_cut_off", _WARNING, "the store can't be reached: %(error)s")
BROKER_LOST: Final = LogEvent("remote", "broker_lost", _WARNING, "broker %(place)s does not answer: %(error)s")
