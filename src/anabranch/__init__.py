"""Anabranch: a stream store in Python whose streams are used like files, with Spark as its engine.

    import anabranch as ab
    with ab.connect("./river", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/raw")
        with store.writer("iot/raw") as writer:
            writer.write(b"hello", key="a")
        with store.reader("iot/raw", start=ab.HEAD) as reader:
            for event in reader:
                print(event.pointer, event.key, event.body)

Names are loaded on first use, so a program that only lists streams does not wait for Arrow to load.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.runtime.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from anabranch import errors as errors
    from anabranch.core.group import Checkpoint
    from anabranch.core.watermarks import TimeWindow, Watermark, WatermarkStatus
    from anabranch.groups.group import ReaderGroup
    from anabranch.groups.reader import GroupReader
    from anabranch.groups.sql_positions import SqlPositions
    from anabranch.model.cut import HEAD, TAIL, Order, StreamCut
    from anabranch.model.event import Event
    from anabranch.model.ids import SegmentId
    from anabranch.model.keyspace import KeyRange
    from anabranch.model.load_policy import RejectAbove, SampleAbove
    from anabranch.model.misplaced import MisplacedEventsWarning
    from anabranch.model.names import StreamName
    from anabranch.model.pointer import EventPointer
    from anabranch.model.policy import ByByteRate, ByEventRate, Fixed
    from anabranch.model.position import Position, StreamSegment
    from anabranch.model.rate import Rate
    from anabranch.model.stream_range import StreamRange
    from anabranch.model.times import TimeWarning
    from anabranch.notifications.follow import Notifications
    from anabranch.notifications.kinds import Notification
    from anabranch.notifications.subscription import Subscription
    from anabranch.reading.byte_reader import ByteReader
    from anabranch.reading.reader import Reader
    from anabranch.remote.open import connect
    from anabranch.runtime.sealing import KeyService
    from anabranch.runtime.settings import Settings
    from anabranch.shared_state.revisioned_stream import RevisionedStream
    from anabranch.shared_state.synchronizer import StateSynchronizer
    from anabranch.store.archives import read_archive, verify_archive
    from anabranch.store.facade import Store
    from anabranch.store.producers import ProducerInfo
    from anabranch.store.recovery import rebuild, restore
    from anabranch.store.subscribers import Subscriber
    from anabranch.streams.ephemeral.keep_alive import Held
    from anabranch.streams.retention.policy import RetainBytes, RetainConsumed, RetainFor, Retention
    from anabranch.transfer.jobs.follow_until import Until
    from anabranch.transfer.jobs.sources import InStore
    from anabranch.writing.acknowledgement import Ack, BatchAck, EventRange
    from anabranch.writing.byte_writer import ByteWriter
    from anabranch.writing.producer import Producer, ProducerAck, ProducerResult
    from anabranch.writing.writer import Writer

_PLACES = {
    "Ack": "writing.acknowledgement",
    "BatchAck": "writing.acknowledgement",
    "Checkpoint": "core.group",
    "ByByteRate": "model.policy",
    "ByEventRate": "model.policy",
    "ByteReader": "reading.byte_reader",
    "ByteWriter": "writing.byte_writer",
    "Event": "model.event",
    "EventPointer": "model.pointer",
    "EventRange": "writing.acknowledgement",
    "Fixed": "model.policy",
    "GroupReader": "groups.reader",
    "HEAD": "model.cut",
    "Held": "streams.ephemeral.keep_alive",
    "InStore": "transfer.jobs.sources",
    "KeyRange": "model.keyspace",
    "KeyService": "runtime.sealing",
    "MisplacedEventsWarning": "model.misplaced",
    "Notification": "notifications.kinds",
    "Notifications": "notifications.follow",
    "Order": "model.cut",
    "Position": "model.position",
    "Producer": "writing.producer",
    "ProducerAck": "writing.producer",
    "ProducerInfo": "store.producers",
    "ProducerResult": "writing.producer",
    "Rate": "model.rate",
    "Reader": "reading.reader",
    "ReaderGroup": "groups.group",
    "RejectAbove": "model.load_policy",
    "RetainBytes": "streams.retention.policy",
    "RetainConsumed": "streams.retention.policy",
    "RetainFor": "streams.retention.policy",
    "Retention": "streams.retention.policy",
    "RevisionedStream": "shared_state.revisioned_stream",
    "SampleAbove": "model.load_policy",
    "SegmentId": "model.ids",
    "Settings": "runtime.settings",
    "SqlPositions": "groups.sql_positions",
    "StateSynchronizer": "shared_state.synchronizer",
    "Store": "store.facade",
    "Subscriber": "store.subscribers",
    "Subscription": "notifications.subscription",
    "StreamCut": "model.cut",
    "StreamName": "model.names",
    "StreamRange": "model.stream_range",
    "StreamSegment": "model.position",
    "TAIL": "model.cut",
    "TimeWarning": "model.times",
    "TimeWindow": "core.watermarks",
    "Until": "transfer.jobs.follow_until",
    "Watermark": "core.watermarks",
    "WatermarkStatus": "core.watermarks",
    "Writer": "writing.writer",
    "connect": "remote.open",
    "read_archive": "store.archives",
    "rebuild": "store.recovery",
    "restore": "store.recovery",
    "verify_archive": "store.archives",
}

__all__ = [
    "HEAD",
    "TAIL",
    "Ack",
    "BatchAck",
    "ByByteRate",
    "ByEventRate",
    "ByteReader",
    "ByteWriter",
    "Checkpoint",
    "Event",
    "EventPointer",
    "EventRange",
    "Fixed",
    "GroupReader",
    "Held",
    "InStore",
    "KeyRange",
    "KeyService",
    "MisplacedEventsWarning",
    "Notification",
    "Notifications",
    "Order",
    "Position",
    "Producer",
    "ProducerAck",
    "ProducerInfo",
    "ProducerResult",
    "Rate",
    "Reader",
    "ReaderGroup",
    "RejectAbove",
    "RetainBytes",
    "RetainConsumed",
    "RetainFor",
    "Retention",
    "RevisionedStream",
    "SampleAbove",
    "SegmentId",
    "Settings",
    "SqlPositions",
    "StateSynchronizer",
    "Store",
    "StreamCut",
    "StreamName",
    "StreamRange",
    "StreamSegment",
    "Subscriber",
    "Subscription",
    "TimeWarning",
    "TimeWindow",
    "Until",
    "Watermark",
    "WatermarkStatus",
    "Writer",
    "connect",
    "errors",
    "read_archive",
    "rebuild",
    "restore",
    "verify_archive",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("anabranch.errors")
    if name in _PLACES:
        return getattr(import_module(f"anabranch.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'anabranch' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
