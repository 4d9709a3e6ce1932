"""Parses and checks the options of the `anabranch` data source, which `option_list` describes. Spark passes them as text,
with names in any case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeVar, cast, get_args

from anabranch.catalog.state.codec import codec_of
from anabranch.core.json_text import parse_json
from anabranch.core.redact import shown_address
from anabranch.core.routing import key_text
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.remote.address import BrokerAddress, is_broker
from anabranch.spark.option_list import OPTIONS, READ, SPARK_OWN, WRITE
from anabranch.spark.stores import Access, BrokerAccess, StorePlaces
from anabranch.store import StoreAddresses
from anabranch.store.addresses import POSTGRES
from anabranch.store.engine_api import TimeKind

__all__ = ["ReadOptions", "WriteOptions", "from_json_option", "to_json_option"]

_T = TypeVar("_T")
_OF_BROKERS: Final = ("tokenFile", "ca", "access", "nativePath")
_OF_NATIVE_PATHS: Final = ("blobs", "history", "encryptionKeys")
_NOT_OF_BROKERS: Final = tuple(each.name for each in OPTIONS if each.internal and each.name != "ranges")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of `spark.read` and `spark.readStream`."""

    store: StorePlaces
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
    pipeline_source: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse them. Raises InvalidArgument and its subclasses."""
        parsed = _ParsedOptions(options, READ, "reading from")
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
            ranges=parsed.json("ranges", tuple[int, tuple[tuple[int, int, int], ...]]),
            lossy=parsed.choice("failOnDataLoss", ("true", "false")) == "false",
            pipeline_source=parsed.text("pipelineSource"),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of `df.write` and `df.writeStream`."""

    store: StorePlaces
    stream: StreamName
    stream_id: StreamId | None
    create: bool
    key: str | None
    time: str | None
    segments: int
    query_id: str | None
    late: str | None
    checkpoint: str | None
    pipeline_run: tuple[str, str] | None
    batch: int | None
    outputs: tuple[StreamId, ...]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse them. Raises InvalidArgument and its subclasses."""
        parsed = _ParsedOptions(options, WRITE, "writing to")
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
            pipeline_run=parsed.json("pipelineRun", tuple[str, str]),
            batch=parsed.number("batch", least=0),
            outputs=parsed.stream_ids("outputs"),
        )


def to_json_option(value: object) -> str:
    """The text of an option whose value is a dataclass."""
    return json.dumps(codec_of(type(value)).encode(value))


def from_json_option(kind: type[_T], name: str, text: str) -> _T:
    """The inverse of `to_json_option`. Raises InvalidArgument."""
    try:
        return codec_of(kind).decode(parse_json(text))
    except (ArithmeticError, AnabranchError, LookupError, TypeError, ValueError) as exc:
        raise InvalidArgument(f"option '{name}' is JSON that pipelines write: {exc}") from exc


class _ParsedOptions:
    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], verb: str) -> None:
        self._said = {name.lower(): value for name, value in options.items()}
        self._verb = verb
        ours = {name.lower(): name for name in known}
        others = {name.lower(): name for name in (*READ, *WRITE)}
        ignored = {name.lower() for name in SPARK_OWN}
        for name in self._said:
            if name in ours or name in ignored or "." in name:  # those with a dot are settings of Spark and Hadoop
                continue
            if name in others:
                raise InvalidArgument(f"option '{others[name]}' can't be used when {verb} a stream")
            if name == "token":
                raise InvalidArgument(
                    "Spark shows options in its plans and logs: set the environment variable ANABRANCH_TOKEN on all machines of "
                    "the job, or name a file that holds the token, .option('tokenFile', '/run/secrets/anabranch')"
                )
            close = get_close_matches(name, ours, n=1)
            public = sorted(each.name for each in OPTIONS if each.name in known and not each.internal)
            hint = f"did you mean '{ours[close[0]]}'?" if close else f"the options are: {', '.join(public)}"
            raise InvalidArgument(f"unknown option '{name}' for {verb} a stream; {hint}")

    def text(self, name: str) -> str | None:
        return (self._said.get(name.lower()) or "").strip() or None

    def store(self) -> StorePlaces:
        path = self.text("path")
        if path is None:
            raise InvalidArgument("the location of the store is missing: .option('path', './river')")
        if is_broker(path):
            return self._broker(path)
        for name in _OF_BROKERS:
            if self.text(name) is not None:
                raise InvalidArgument(
                    f"option '{name}' is only for a broker's address: .option('path', 'anabranch://…')"
                )
        return self._addresses(path)

    def _addresses(self, path: str) -> StoreAddresses:
        """Where the store itself is, with its catalog at `path`."""
        blobs, history = self.text("blobs"), self.text("history")
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

    def _broker(self, path: str) -> BrokerAccess:
        native = self.text("nativePath")
        for name in _NOT_OF_BROKERS + (() if native is not None else _OF_NATIVE_PATHS):
            if self.text(name) is not None:
                raise InvalidArgument(f"option '{name}' can't be used with a broker, which opens the store itself")
        access = cast(Access, self.choice("access", get_args(Access)))
        if access == "native" and native is None:
            raise InvalidArgument(
                "option 'access' is 'native', so option 'nativePath' must say where the store is: a broker does not pass that on"
            )
        if native is not None and is_broker(native):
            raise InvalidArgument("option 'nativePath' is the address of the store itself, not of a broker")
        for name in ("nativePath", "blobs", "history"):
            if (place := self.text(name)) is not None and shown_address(place) != place:
                raise InvalidArgument(
                    f"option '{name}' holds a secret, and Spark shows options in its plans: {shown_address(place)}. Take it from "
                    "the environment or a file of each machine, such as PostgreSQL's PGPASSFILE"
                )
        token_file, ca = self.text("tokenFile"), self.text("ca")
        return BrokerAccess(
            str(BrokerAddress.parse(path)),
            None if token_file is None else str(Path(token_file).absolute()),
            None if ca is None else str(Path(ca).absolute()),
            None if native is None else self._addresses(native),
            access,
        )

    def stream(self) -> StreamName:
        name = self.text("stream")
        if name is None:
            raise InvalidArgument("the stream is missing: .option('stream', 'scope/name')")
        return StreamName.parse(name)

    def stream_id(self) -> StreamId | None:
        number = self.number("streamId", least=1)
        return None if number is None else StreamId(number)

    def stream_ids(self, name: str) -> tuple[StreamId, ...]:
        try:
            return tuple(StreamId(int(each)) for each in self.names(name) or ())
        except ValueError as exc:
            raise InvalidArgument(f"option '{name}' is a list of ids of streams: {exc}") from exc

    def names(self, name: str) -> tuple[str, ...] | None:
        text = self.text(name)
        if text is None:
            return None
        if text.startswith("["):
            try:
                parsed = parse_json(text)
            except ValueError as exc:
                raise InvalidArgument(f"option '{name}' is not a JSON list: {exc}") from exc
            if any(not isinstance(each, str | int) for each in parsed):
                raise InvalidArgument(
                    f"expected option '{name}' as a list of texts, integers and booleans, got {text:.100}"
                )
            found = [str(key_text(each)) for each in parsed]
        else:
            found = [each.strip() for each in text.split(",")]
        return tuple(dict.fromkeys(found))

    def json(self, name: str, kind: type[_T]) -> _T | None:
        text = self.text(name)
        return None if text is None else from_json_option(kind, name, text)

    def number(self, name: str, *, least: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:  # such as '1__0', or more digits than Python converts
            number = -1
        if number < least:
            raise InvalidArgument(f"expected option '{name}' as an integer of at least {least}, got '{text:.100}'")
        return number

    def choice(self, name: str, words: tuple[str, ...]) -> str:
        text = (self.text(name) or words[0]).lower()
        if text not in words:
            raise InvalidArgument(f"expected option '{name}' as {' or '.join(words)}, got '{text}'")
        return text
