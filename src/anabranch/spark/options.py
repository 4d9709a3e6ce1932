"""The options of the `anabranch` data source, parsed and checked. Spark passes them as text, with names in any case.

path                  the store's folder, or the URL of its PostgreSQL catalog
blobs, history        where the blobs are, as for `anabranch.connect`; a PostgreSQL catalog needs `blobs`
encryptionKeys        where the keys of an encrypted store are, `file:/path` or `env:NAME`, on every machine of the job
stream                scope/name
streamId              the stream's id when the query was created; with it the stream is found even after a rename
start, end            where reading begins (default: the head) and, exclusively, ends: head, tail, a stream cut, an
                      event pointer or an ISO 8601 time. The end may also be `watermark`: up to where the stream is
                      complete according to its writers. Without an end, a batch read ends at the tail as of its
                      planning and a stream read never. A restarted stream read resolves its end again, but keeps
                      its start
by                    what a time in start or end means: the append time (`append`, the default) or the `event` time
columns               the columns to read, as `a, b` or a JSON list; default: all
keys                  read only the events of these routing keys, as `a, b` or a JSON list
maxEventsPerTrigger   the maximum number of events in a micro-batch, counted before `keys` is applied
maxBytesPerTrigger    the approximate maximum of logical bytes in a micro-batch
pollMs                how long to wait for events before reporting to Spark that there is no micro-batch (default 500)

create                `true`: create a missing target stream (and scope), with the DataFrame's columns
key, time             the columns for the routing key and the event time of a stream that is created
segments              the number of segments of a stream that is created
queryId               replaces Spark's id of the streaming query, for when the checkpoint can't be read
late                  JSON, see `anabranch.spark.pipelines.late_commit`
checkpointLocation    Spark's own option
checkpointUrl         the same place as a URL with the bucket's connection options: s3://bucket/prefix?endpoint=…
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from anabranch.core.redact import shown_address
from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.store import StoreAddresses
from anabranch.store.addresses import POSTGRES
from anabranch.store.engine_api import TimeKind

__all__ = ["ReadOptions", "WriteOptions"]

_READ: Final = (
    "path",
    "blobs",
    "history",
    "encryptionKeys",
    "stream",
    "streamId",
    "start",
    "end",
    "by",
    "columns",
    "keys",
    "maxEventsPerTrigger",
    "maxBytesPerTrigger",
    "pollMs",
    "ranges",
    "failOnDataLoss",
)
_WRITE: Final = (
    "path",
    "blobs",
    "history",
    "encryptionKeys",
    "stream",
    "streamId",
    "create",
    "key",
    "time",
    "segments",
    "queryId",
    "late",
    "checkpointLocation",
    "checkpointUrl",
)
_SPARK: Final = ("queryName", "outputMode", "trigger", "mergeSchema", "ignoreMissingFiles")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of `spark.read` and `spark.readStream`."""

    store: StoreAddresses
    stream: StreamName
    stream_id: StreamId | None
    start: str
    end: str | None
    by: TimeKind
    columns: tuple[str, ...] | None
    keys: tuple[str, ...] | None
    events_max: int | None
    bytes_max: int | None
    poll_s: float
    ranges: tuple[int, tuple[tuple[int, int, int], ...]] | None
    lossy: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse them. Raises InvalidArgument and its subclasses."""
        parsed = _ParsedOptions(options, _READ, "reading from")
        return cls(
            store=parsed.store(),
            stream=parsed.stream(),
            stream_id=parsed.stream_id(),
            start=parsed.text("start") or "head",
            end=parsed.text("end"),
            by="event" if parsed.choice("by", ("append", "event")) == "event" else "append",
            columns=parsed.names("columns"),
            keys=parsed.names("keys"),
            events_max=parsed.number("maxEventsPerTrigger", least=1),
            bytes_max=parsed.number("maxBytesPerTrigger", least=1),
            poll_s=(500 if (poll := parsed.number("pollMs", least=0)) is None else poll) / 1000,
            ranges=parsed.ranges(),
            lossy=parsed.choice("failOnDataLoss", ("true", "false")) == "false",
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of `df.write` and `df.writeStream`."""

    store: StoreAddresses
    stream: StreamName
    stream_id: StreamId | None
    create: bool
    key: str | None
    time: str | None
    segments: int
    query_id: str | None
    late: str | None
    checkpoint: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse them. Raises InvalidArgument and its subclasses."""
        parsed = _ParsedOptions(options, _WRITE, "writing to")
        return cls(
            store=parsed.store(),
            stream=parsed.stream(),
            stream_id=parsed.stream_id(),
            create=parsed.choice("create", ("false", "true")) == "true",
            key=parsed.text("key"),
            time=parsed.text("time"),
            segments=parsed.number("segments", least=1) or 1,
            query_id=parsed.text("queryId"),
            late=parsed.text("late"),
            checkpoint=parsed.text("checkpointUrl") or parsed.text("checkpointLocation"),
        )


class _ParsedOptions:
    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], verb: str) -> None:
        self._said = {name.lower(): value for name, value in options.items()}
        self._verb = verb
        ours = {name.lower(): name for name in known}
        spelled = {name.lower(): name for name in (*_READ, *_WRITE, *_SPARK)}
        for name in self._said:
            if name in ours or "." in name:
                continue
            if name in spelled:
                if spelled[name] in (*_READ, *_WRITE):
                    raise InvalidArgument(f"option '{spelled[name]}' can't be used when {verb} a stream")
                continue
            # Spark passes its own options too, so an unknown option is refused only if it resembles one of ours.
            if close := get_close_matches(name, ours, n=1, cutoff=0.75):
                raise InvalidArgument(f"unknown option '{name}'; did you mean '{ours[close[0]]}'?")

    def text(self, name: str) -> str | None:
        return (self._said.get(name.lower()) or "").strip() or None

    def store(self) -> StoreAddresses:
        path, blobs, history = self.text("path"), self.text("blobs"), self.text("history")
        if path is None:
            raise InvalidArgument("the location of the store is missing: .option('path', './river')")
        if "memory://" in (path, blobs, history):
            raise InvalidArgument("Spark's workers are other processes and can't see memory://; use a folder")
        if path.startswith(POSTGRES) and blobs is None:
            raise InvalidArgument(
                "a PostgreSQL catalog stores no blobs: pass their location: .option('blobs', './blobs')"
            )
        if "://" in path and not path.startswith((*POSTGRES, "file://")):
            raise InvalidArgument(
                f"'{shown_address(path)}' is not the address of a store: expected a folder, or a file:// or postgresql:// URL"
            )
        return StoreAddresses.of(path, blobs, history, self.text("encryptionKeys"))

    def stream(self) -> StreamName:
        name = self.text("stream")
        if name is None:
            raise InvalidArgument("the stream is missing: .option('stream', 'scope/name')")
        return StreamName.parse(name)

    def stream_id(self) -> StreamId | None:
        number = self.number("streamId", least=1)
        return None if number is None else StreamId(number)

    def names(self, name: str) -> tuple[str, ...] | None:
        text = self.text(name)
        if text is None:
            return None
        if text.startswith("["):
            try:
                found = [str(each) for each in json.loads(text)]
            except ValueError as exc:
                raise InvalidArgument(f"option '{name}' is not a JSON list: {exc}") from exc
        else:
            found = [each.strip() for each in text.split(",")]
        return tuple(dict.fromkeys(found))

    def ranges(self) -> tuple[int, tuple[tuple[int, int, int], ...]] | None:
        text = self.text("ranges")
        if text is None:
            return None
        try:
            stream, ranges = json.loads(text)
            return int(stream), tuple((int(segment), int(start), int(stop)) for segment, start, stop in ranges)
        except (ValueError, TypeError) as exc:
            raise InvalidArgument(f"option 'ranges' is JSON [stream id, [[segment, start, stop], …]]: {exc}") from exc

    def number(self, name: str, *, least: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.replace("_", "").isdecimal() or int(text) < least:
            raise InvalidArgument(f"option '{name}' is a whole number from {least}, not '{text}'")
        return int(text)

    def choice(self, name: str, words: tuple[str, ...]) -> str:
        text = (self.text(name) or words[0]).lower()
        if text not in words:
            raise InvalidArgument(f"option '{name}' is {' or '.join(words)}, not '{text}'")
        return text
