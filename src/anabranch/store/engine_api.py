"""What engines that run over a store, such as Spark, use beyond its public API: reading extents, leases, staging and
publishing, cuts, and the tasks of distributed jobs.

Internal: it may change with any release. Engines import nothing else from the packages below the store; they open
stores by `connect`, and find the parts of an open one in `Store.internals`.
"""

from __future__ import annotations

from anabranch.log.lease import HeldLease
from anabranch.log.parquet.file_format import APPENDED, METADATA_KEY
from anabranch.log.parquet.footer import read_footer
from anabranch.log.read import LogReader, SegmentRows, Selection, appended_of, offsets_of
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.tail import Tail
from anabranch.log.time_index import append_time, cut_at, event_times_at, newest_event
from anabranch.log.view import load
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place, parse_place, place_text, to_cut
from anabranch.reading.history.ranges import SegmentPartRange
from anabranch.store.addresses import POSTGRES
from anabranch.streams.ephemeral.keep_alive import Held
from anabranch.streams.publish import NumberedUnit, Publication, last_published
from anabranch.streams.retention.policy import Retention
from anabranch.transfer.jobs.deduplicate_remote import DigestTask, packed
from anabranch.transfer.jobs.remote_tasks import Bundle, carry
from anabranch.watermarks.watermarks import newest_event_time
from anabranch.writing.diverting import divided_batch, violating_rows
from anabranch.writing.staging import StagedBatch, Stager

__all__ = [
    "APPENDED",
    "METADATA_KEY",
    "POSTGRES",
    "Bundle",
    "DigestTask",
    "Held",
    "HeldLease",
    "LogReader",
    "NumberedUnit",
    "Place",
    "Publication",
    "Retention",
    "SegmentPartRange",
    "SegmentReader",
    "SegmentRows",
    "Selection",
    "StagedBatch",
    "Stager",
    "Tail",
    "TimeKind",
    "append_time",
    "appended_of",
    "carry",
    "cut_at",
    "divided_batch",
    "event_times_at",
    "last_published",
    "load",
    "newest_event",
    "newest_event_time",
    "offsets_of",
    "packed",
    "parse_place",
    "place_text",
    "read_footer",
    "to_cut",
    "violating_rows",
]
