"""Anabranch: a stream store in Python that people use the way they use files, with Spark as its engine.

    import anabranch as ab
    with ab.connect("./river") as store:
        store.streams.create_scope("iot")
        store.streams.create("iot/raw")
        with store.writer("iot/raw") as writer:
            writer.write(b"hello", key="a")
        with store.reader("iot/raw", start=ab.HEAD) as reader:
            for event in reader:
                print(event.pointer, event.key, event.body)

Names are loaded when first used, so that a program which only lists streams does not wait for Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from anabranch import errors as errors
    from anabranch.core.group import Checkpoint
    from anabranch.core.notifications import Notification
    from anabranch.core.watermarks import TimeWindow, Watermark, WatermarkStatus
    from anabranch.model.cut import HEAD, TAIL, Order, StreamCut
    from anabranch.model.event import Event
    from anabranch.model.ids import SegmentId
    from anabranch.model.keyspace import KeyRange
    from anabranch.model.names import StreamName
    from anabranch.model.pointer import EventPointer
    from anabranch.model.policy import ByByteRate, ByEventRate, Fixed
    from anabranch.model.position import Position, StreamSegment
    from anabranch.model.retention import RetainBytes, RetainFor, Retention
    from anabranch.model.stream_range import StreamRange
    from anabranch.readers.byte_reader import ByteReader
    from anabranch.readers.group.group import ReaderGroup
    from anabranch.readers.group.reader import GroupReader
    from anabranch.readers.group.sql import SqlPositions
    from anabranch.readers.notifications.follow import Notifications
    from anabranch.readers.notifications.listen import Subscription
    from anabranch.readers.reader import Reader
    from anabranch.readers.revisioned import RevisionedStream
    from anabranch.readers.synchronizer import StateSynchronizer
    from anabranch.runtime.sealing import KeyService
    from anabranch.runtime.settings import Settings
    from anabranch.store.archives import read_archive, verify_archive
    from anabranch.store.facade import Store
    from anabranch.store.opening import connect
    from anabranch.store.recovery import rebuild, restore
    from anabranch.streams.ack import Ack, BatchAck, EventRange
    from anabranch.streams.byte_writer import ByteWriter
    from anabranch.streams.holding import Held
    from anabranch.streams.jobs.sources import InStore
    from anabranch.streams.jobs.until import Until
    from anabranch.streams.writer import Writer

_PLACES = {
    "Ack": "streams.ack",
    "BatchAck": "streams.ack",
    "Checkpoint": "core.group",
    "ByByteRate": "model.policy",
    "ByEventRate": "model.policy",
    "ByteReader": "readers.byte_reader",
    "ByteWriter": "streams.byte_writer",
    "Event": "model.event",
    "EventPointer": "model.pointer",
    "EventRange": "streams.ack",
    "Fixed": "model.policy",
    "GroupReader": "readers.group.reader",
    "HEAD": "model.cut",
    "Held": "streams.holding",
    "InStore": "streams.jobs.sources",
    "KeyRange": "model.keyspace",
    "KeyService": "runtime.sealing",
    "Notification": "core.notifications",
    "Notifications": "readers.notifications.follow",
    "Order": "model.cut",
    "Position": "model.position",
    "Reader": "readers.reader",
    "ReaderGroup": "readers.group.group",
    "RetainBytes": "model.retention",
    "RetainFor": "model.retention",
    "Retention": "model.retention",
    "RevisionedStream": "readers.revisioned",
    "SegmentId": "model.ids",
    "Settings": "runtime.settings",
    "SqlPositions": "readers.group.sql",
    "StateSynchronizer": "readers.synchronizer",
    "Store": "store.facade",
    "Subscription": "readers.notifications.listen",
    "StreamCut": "model.cut",
    "StreamName": "model.names",
    "StreamRange": "model.stream_range",
    "StreamSegment": "model.position",
    "TAIL": "model.cut",
    "TimeWindow": "core.watermarks",
    "Until": "streams.jobs.until",
    "Watermark": "core.watermarks",
    "WatermarkStatus": "core.watermarks",
    "Writer": "streams.writer",
    "connect": "store.opening",
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
    "Notification",
    "Notifications",
    "Order",
    "Position",
    "Reader",
    "ReaderGroup",
    "RetainBytes",
    "RetainFor",
    "Retention",
    "RevisionedStream",
    "SegmentId",
    "Settings",
    "SqlPositions",
    "StateSynchronizer",
    "Store",
    "StreamCut",
    "StreamName",
    "StreamRange",
    "StreamSegment",
    "Subscription",
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
