"""The options of the `anabranch` data source, read and checked. Spark hands them over as text, names in any case.

path                  the store's folder, or the URL of its PostgreSQL catalog
blobs, history        where the bytes are, as `anabranch.connect` takes them; a PostgreSQL catalog needs `blobs`
encryptionKeys        where the keys of an encrypted store are, `file:/path` or `env:NAME`, on every machine of the job
stream                scope/name
streamId              the id that the stream had when the query was made: found by it, it may be renamed meanwhile
start, end            where reading begins (default: the head) and, exclusively, ends: head, tail, a stream cut, an
                      event pointer or an ISO 8601 time; as the end also `watermark`: up to where the stream is complete,
                      as its writers said. Without an end, a batch read ends at the tail as of its planning and a stream
                      read never; a stream read finds out anew what its end means when it is restarted, but keeps its start
by                    what a time in start or end is: the append time (`append`, the default) or the `event` time
columns               those to read, as `a, b` or a JSON list; default: all
keys                  only the events of these routing keys, as `a, b` or a JSON list
maxEventsPerTrigger   at most so many events in a micro-batch, counted before `keys`
maxBytesPerTrigger    at most about so many logical bytes in a micro-batch
pollMs                how long a micro-batch is waited for before Spark is told that there is none (default 500)

create                `true`: a missing target stream (and scope) is made, with the DataFrame's columns
key, time             which column shall be the routing key, and the event time, of a stream that is made
segments              how many segments it gets
queryId               stands for Spark's id of the streaming query, where the checkpoint can't be read
late                  JSON, see `anabranch.spark.late_commit`
checkpointLocation    Spark's own
checkpointUrl         the same place as a URL that tells how a bucket is reached: s3://bucket/prefix?endpoint=…
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from anabranch.catalog.postgres.address import PREFIXES as POSTGRES
from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.readers.place import TimeKind
from anabranch.store import Places

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
    """Options of `spark.read` and `spark.readStream`."""

    store: Places
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
        """Read them. Raises InvalidArgument and its kinds."""
        said = _Said(options, _READ, "reading from")
        return cls(
            store=said.store(),
            stream=said.stream(),
            stream_id=said.stream_id(),
            start=said.text("start") or "head",
            end=said.text("end"),
            by="event" if said.choice("by", ("append", "event")) == "event" else "append",
            columns=said.names("columns"),
            keys=said.names("keys"),
            events_max=said.number("maxEventsPerTrigger", least=1),
            bytes_max=said.number("maxBytesPerTrigger", least=1),
            poll_s=(500 if (poll := said.number("pollMs", least=0)) is None else poll) / 1000,
            ranges=said.ranges(),
            lossy=said.choice("failOnDataLoss", ("true", "false")) == "false",
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of `df.write` and `df.writeStream`."""

    store: Places
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
        """Read them. Raises InvalidArgument and its kinds."""
        said = _Said(options, _WRITE, "writing to")
        return cls(
            store=said.store(),
            stream=said.stream(),
            stream_id=said.stream_id(),
            create=said.choice("create", ("false", "true")) == "true",
            key=said.text("key"),
            time=said.text("time"),
            segments=said.number("segments", least=1) or 1,
            query_id=said.text("queryId"),
            late=said.text("late"),
            checkpoint=said.text("checkpointUrl") or said.text("checkpointLocation"),
        )


class _Said:
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
                    raise InvalidArgument(f"option '{spelled[name]}' means nothing when {verb} a stream")
                continue
            # Spark hands over options of its own too, so only what looks like one of ours is refused.
            if close := get_close_matches(name, ours, n=1, cutoff=0.75):
                raise InvalidArgument(f"unknown option '{name}'; did you mean '{ours[close[0]]}'?")

    def text(self, name: str) -> str | None:
        return (self._said.get(name.lower()) or "").strip() or None

    def store(self) -> Places:
        path, blobs, history = self.text("path"), self.text("blobs"), self.text("history")
        if path is None:
            raise InvalidArgument("say where the store is: .option('path', './river')")
        if "memory://" in (path, blobs, history):
            raise InvalidArgument("Spark's workers are other processes and can't see memory://; use a folder")
        if path.startswith(POSTGRES) and blobs is None:
            raise InvalidArgument(
                "a PostgreSQL catalog holds no blobs: say where they are: .option('blobs', './blobs')"
            )
        if "://" in path and not path.startswith((*POSTGRES, "file://")):
            raise InvalidArgument(f"'{path}' is no store: give a folder, or a file:// or postgresql:// URL")
        return Places.of(path, blobs, history, self.text("encryptionKeys"))

    def stream(self) -> StreamName:
        name = self.text("stream")
        if name is None:
            raise InvalidArgument("say which stream: .option('stream', 'scope/name')")
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
                raise InvalidArgument(f"option '{name}' is no JSON list: {exc}") from exc
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
