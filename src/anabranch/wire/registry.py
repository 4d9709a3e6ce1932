"""The classes whose values may cross the network, each under its own name, and the text forms of those that have one.

A class that is not listed here can't be sent, and no message from outside can create one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.catalog.port import Lease
from anabranch.catalog.state.ephemeral import Holder
from anabranch.catalog.state.job import JobRow, JobSource, JobState
from anabranch.catalog.state.listener import GroupSummary
from anabranch.catalog.state.module_version import ModuleVersion
from anabranch.catalog.state.query_question import (
    CommittedState,
    DeclaredParameter,
    StatementPlan,
    StateRow,
    UpgradePlan,
    ValidatedQuery,
    ValidatedStatement,
)
from anabranch.catalog.state.query_version import QueryFile, QueryVersion
from anabranch.core.copy import CopiedRange, CopyResult, Filtered
from anabranch.core.group import Checkpoint, GroupState, Member
from anabranch.core.stitch import JoinResult, MovedRange
from anabranch.core.watermarks import TimeWindow, Watermark, WatermarkStatus, WriterTime
from anabranch.deployments.info import QueryInfo
from anabranch.deployments.templates.template import QueryTemplate, TemplateParameter
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.groups.load import Distribution, Unread
from anabranch.log.checking.check import Finding, Severity
from anabranch.log.checking.repair import RepairAction
from anabranch.log.keyring import Rotation
from anabranch.log.recovery.backup import BackupReport
from anabranch.log.recovery.manifest import Manifest, ManifestPart
from anabranch.log.upkeep.collect import CollectReport
from anabranch.log.upkeep.compact import CompactReport
from anabranch.log.upkeep.failures import UpkeepFailure
from anabranch.log.upkeep.space import PinnedBytes, SpaceReport
from anabranch.model.append import BlobLocation, LogState, TimeBounds
from anabranch.model.cut import Edge, Order, StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.load_policy import RejectAbove, SampleAbove
from anabranch.model.misplaced import Misplaced
from anabranch.model.names import StreamName
from anabranch.model.origin import Ancestor, Origin, OriginPart
from anabranch.model.pointer import EventPointer
from anabranch.model.policy import ByByteRate, ByEventRate, Fixed
from anabranch.model.position import Position, StreamSegment
from anabranch.model.rate import Rate
from anabranch.model.relocation import Kept, RelocatedCut, Relocation
from anabranch.model.replaced import Relocated, Replaced
from anabranch.model.segment_range import Distance, RangesBetween, SegmentRange
from anabranch.model.stream import Scope, Segment, Span, StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.model.transaction import TransactionInfo, TransactionState
from anabranch.notifications.kinds import Notification
from anabranch.reading.history.ranges import SegmentPartRange
from anabranch.store.addresses import StoreAddresses
from anabranch.store.producers import ProducerInfo
from anabranch.store.subscribers import Subscriber
from anabranch.store.write import WriteReport
from anabranch.streams.arguments import segment_id
from anabranch.streams.ephemeral.hold import HolderState
from anabranch.streams.lineage.api import Diff
from anabranch.streams.retention.apply import RetainReport
from anabranch.streams.retention.policy import Retention
from anabranch.streams.retention.subscribers import LostEvents
from anabranch.streams.scaling.apply import RescaleReport
from anabranch.streams.scaling.plan import ScalingPace
from anabranch.transfer.archives.digest import SegmentPart, StreamDigest
from anabranch.transfer.archives.export import ArchiveReport
from anabranch.transfer.archives.format import Imported
from anabranch.transfer.jobs.follow_until import Until
from anabranch.transfer.jobs.progress import JobProgress, RangeProgress
from anabranch.writing.acknowledgement import EventRange

Parse = Callable[[str], Any]


def _text_of(parse: Parse) -> Parse:
    """As `parse`, with every failure as InvalidArgument."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except AnabranchError:
            raise
        except (ValueError, TypeError, OverflowError) as exc:
            raise InvalidArgument(f"{text!r:.100} can't be parsed: {exc}") from exc

    return parsed


TEXTS: Final[Mapping[type, Parse]] = {
    EventPointer: _text_of(EventPointer.parse),
    Position: _text_of(Position.parse),
    SegmentId: _text_of(segment_id),
    StreamCut: _text_of(StreamCut.parse),
    StreamName: _text_of(StreamName.parse),
    StreamSegment: _text_of(StreamSegment.parse),
}
"""Classes that are sent as their text: `str` and its inverse."""

ENUMS: Final = (Edge, HolderState, JobState, Order, Severity, TransactionState)

RECORDS: Final[tuple[type, ...]] = (
    Ancestor,
    ArchiveReport,
    BackupReport,
    BlobLocation,
    ByByteRate,
    ByEventRate,
    Checkpoint,
    CollectReport,
    CommittedState,
    CompactReport,
    CopiedRange,
    CopyResult,
    Diff,
    Distance,
    Distribution,
    EventRange,
    Filtered,
    Finding,
    Fixed,
    GroupState,
    GroupSummary,
    Holder,
    Imported,
    JobProgress,
    JobRow,
    JobSource,
    JoinResult,
    Kept,
    KeyRange,
    Lease,
    LogState,
    LostEvents,
    Manifest,
    ManifestPart,
    Member,
    Misplaced,
    ModuleVersion,
    MovedRange,
    Notification,
    Origin,
    OriginPart,
    PinnedBytes,
    ProducerInfo,
    QueryFile,
    QueryInfo,
    QueryTemplate,
    QueryVersion,
    DeclaredParameter,
    StatementPlan,
    StateRow,
    UpgradePlan,
    ValidatedQuery,
    ValidatedStatement,
    RangeProgress,
    RangesBetween,
    Rate,
    RejectAbove,
    RelocatedCut,
    Relocated,
    Relocation,
    RepairAction,
    Replaced,
    RescaleReport,
    RetainReport,
    Retention,
    Rotation,
    ScalingPace,
    SampleAbove,
    Scope,
    Segment,
    SegmentPart,
    SegmentPartRange,
    SegmentRange,
    SpaceReport,
    Span,
    StoreAddresses,
    StreamDigest,
    StreamInfo,
    StreamRange,
    StreamView,
    Subscriber,
    TemplateParameter,
    TimeBounds,
    TimeWindow,
    TransactionInfo,
    Unread,
    Until,
    UpkeepFailure,
    Watermark,
    WatermarkStatus,
    WriteReport,
    WriterTime,
)
"""Dataclasses and named tuples, sent by their fields."""

NAMED: Final[Mapping[str, type]] = {each.__name__: each for each in (*TEXTS, *ENUMS, *RECORDS)}
