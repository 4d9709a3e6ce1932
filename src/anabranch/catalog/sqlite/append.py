"""The commit function on SQLite: decides units against the locked logs, then writes what was accepted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import apsw

from anabranch.catalog import rows
from anabranch.catalog.digests import row_digest
from anabranch.catalog.sqlite.known_states import KnownStates, LogWriter, StreamProducer
from anabranch.catalog.sqlite.reading import SQL, SqliteReading
from anabranch.core.decide import advance_log, advance_progress, decide
from anabranch.core.producer import advance_producer, decide_sequence
from anabranch.model.append import (
    Appended,
    BlobEntry,
    LogState,
    Part,
    Progress,
    Refusal,
    Refused,
    Unit,
    Verdict,
)
from anabranch.model.ids import BlobId, LogId, Micros, StreamId, WriterId
from anabranch.model.producer import ProducerSequence


def _digested_extent(values: tuple[Any, ...]) -> tuple[Any, ...]:
    # In the digest the blob's key (the last value) follows the blob. The bytes (the last but one) have a checksum.
    return (*values[:-1], row_digest(values[:4] + values[-1:] + values[4:-2]))


def _digested_log(values: tuple[Any, ...]) -> tuple[Any, ...]:
    *changing, log, stream = values
    changing[1] = int(changing[1])  # sealed
    return (*values, row_digest((log, stream, *changing)))


def _digested_row(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*values, row_digest(values))


# For the statements of every commit: appends the digest to the parameters. A SQL function would take longer.
DIGESTED: Final[dict[str, Callable[[Any], tuple[Any, ...]]]] = {
    "insert_extent": _digested_extent,
    "update_log": _digested_log,
    "put_progress": _digested_row,
    "put_producer": _digested_row,
}


class AppendBatch:
    """The appends of one transaction: reads states once, changes them in memory, and writes them in `flush`. States in
    `known` are not read."""

    def __init__(
        self,
        database: apsw.Connection,
        now: Micros,
        units: Sequence[Unit],
        blobs: Sequence[BlobEntry],
        known: KnownStates | None = None,
    ) -> None:
        self._database = database
        self._blobs = {blob.key: blob for blob in blobs}
        self._blob_ids: dict[str, BlobId] = {}
        self._reading = SqliteReading(database)
        self._now = now
        known = known or KnownStates()
        self._logs = known.logs
        self._progress = known.progress
        self._producers = known.producers
        if blobs and known.horizon is None:
            known.horizon = self._reading.horizon()
        self._horizon = known.horizon or Micros(0)
        self._read([part for unit in units for part in unit.parts])
        self._read_producers(units)
        self._changed_logs: set[LogId] = set()
        self._changed_writers: set[LogWriter] = set()
        self._changed_producers: set[StreamProducer] = set()
        self._extents: list[tuple[object, ...]] = []

    def unit(self, unit: Unit) -> tuple[Verdict, ...]:
        """Decide one unit, taking into account those before it."""
        if unit.producer is not None:
            return self._producer_unit(unit, unit.producer)
        return self._unit(unit)

    def _producer_unit(self, unit: Unit, carried: ProducerSequence) -> tuple[Verdict, ...]:
        """Decide a unit of a producer: its numbers first, then its parts."""
        key = (carried.stream, carried.producer)
        producer = self._producers[key]
        refused = decide_sequence(carried, producer)
        if refused is not None:
            return (refused,) * len(unit.parts)
        verdicts = self._unit(unit)
        appended = [verdict for verdict in verdicts if isinstance(verdict, Appended)]
        if len(appended) == len(verdicts):
            assert producer is not None, "else it was refused"
            self._producers[key] = advance_producer(producer, carried, unit.parts, appended, now=self._now)
            self._changed_producers.add(key)
        return verdicts

    def _unit(self, unit: Unit) -> tuple[Verdict, ...]:
        if len(unit.parts) == 1 and unit.request is None:
            return (self._single_part(unit.parts[0]),)
        if unit.request is not None and (recorded := self._reading.request(unit.request)):
            return tuple(Appended(start, Micros(at), duplicate=True) for start, at in json.loads(recorded[1]))
        logs: dict[LogId, LogState] = {}
        progress: dict[LogWriter, Progress | None] = {}
        verdicts: list[Verdict] = []
        accepted: list[tuple[Part, Appended, LogState]] = []
        for part in unit.parts:
            log = logs.get(part.log) or self._logs.get(part.log)
            writer = None if part.sequence is None else (part.log, part.sequence.writer)
            before = None if writer is None else progress.get(writer) or self._progress[writer]
            verdict = decide(part, log, before, now=self._now, expired=self._expired(part))
            verdicts.append(verdict)
            if isinstance(verdict, Appended) and not verdict.duplicate:
                assert log is not None
                after = logs[part.log] = advance_log(log, part, verdict)
                if writer is not None:
                    progress[writer] = advance_progress(before, part, verdict)
                accepted.append((part, verdict, after))
        if any(isinstance(verdict, Refused) for verdict in verdicts):
            return tuple(v if isinstance(v, Refused) else _refused_with_unit(v) for v in verdicts)
        self._logs.update(logs)
        self._progress.update(progress)
        self._changed_logs.update(logs)
        self._changed_writers.update(progress)
        self._extents += [rows.appended_values(*each, self._blob_id(each[0])) for each in accepted]
        if unit.request is not None:
            result = json.dumps([(v.start, v.appended_at) for v in verdicts if isinstance(v, Appended)])
            self._database.execute(SQL["record_request"], (unit.request, "append", result, self._now))
        return tuple(verdicts)

    def _single_part(self, part: Part) -> Verdict:
        """Like `_unit`, for a unit of one part: a commit may have a thousand such units."""
        log, sequence = self._logs.get(part.log), part.sequence
        writer = None if sequence is None else (part.log, sequence.writer)
        before = None if writer is None else self._progress[writer]
        verdict = decide(part, log, before, now=self._now, expired=self._expired(part))
        if isinstance(verdict, Appended) and not verdict.duplicate:
            assert log is not None
            after = self._logs[part.log] = advance_log(log, part, verdict)
            self._changed_logs.add(part.log)
            if writer is not None:
                self._progress[writer] = advance_progress(before, part, verdict)
                self._changed_writers.add(writer)
            self._extents.append(rows.appended_values(part, verdict, after, self._blob_id(part)))
        return verdict

    def flush(self) -> bool:
        """Write the accepted parts; False if there are none."""
        if not self._extents:
            return False
        self._write_rows("insert_extent", self._extents)
        self._write_rows("update_log", [rows.log_values(self._logs[log]) for log in sorted(self._changed_logs)])
        progress_rows = []
        for log, writer in sorted(self._changed_writers):
            progress = self._progress[log, writer]
            assert progress is not None
            progress_rows.append(
                (log, writer, progress.next, progress.fence, rows.pack_recent(progress.recent), self._now)
            )
        self._write_rows("put_progress", progress_rows)
        if self._changed_producers:
            self._write_rows("put_producer", [self._producer_row(*key) for key in sorted(self._changed_producers)])
        return True

    def _producer_row(self, stream: StreamId, name: str) -> tuple[object, ...]:
        producer = self._producers[stream, name]
        assert producer is not None
        return (stream, name, producer.epoch, producer.last, producer.answers.packed, producer.seen_at)

    def _write_rows(self, name: str, values: Sequence[tuple[object, ...]]) -> None:
        digested = DIGESTED[name]
        if len(values) == 1:  # a single event on an idle store: every microsecond counts
            self._database.execute(SQL[name], digested(values[0]))
        else:
            self._database.executemany(SQL[name], map(digested, values))

    def _read(self, parts: Sequence[Part]) -> None:
        """Read the logs and writers of the parts that are not known."""
        logs = {part.log for part in parts if part.log not in self._logs}
        writers = {(part.log, part.sequence.writer): None for part in parts if part.sequence is not None}
        unknown = [each for each in writers if each not in self._progress]
        if len(logs) == 1:  # SQLite takes several times as long for a list of one
            (log,) = logs
            row = self._database.execute(SQL["log"], (log,)).fetchone()
            if row is not None:
                self._logs[log] = rows.log(row)
        elif logs:
            self._logs.update(self._reading.logs(sorted(logs)))
        if len(unknown) == 1:
            row = self._database.execute(SQL["progress"], unknown[0]).fetchone()
            self._progress[unknown[0]] = None if row is None else rows.progress(row)
        elif unknown:
            self._progress.update(self._progress_of(unknown))

    def _read_producers(self, units: Sequence[Unit]) -> None:
        for unit in units:
            if (carried := unit.producer) is not None:
                key = (carried.stream, carried.producer)
                if key not in self._producers:
                    self._producers[key] = self._reading.producer(*key)

    def _progress_of(self, writers: Iterable[LogWriter]) -> dict[LogWriter, Progress | None]:
        logs_of: dict[WriterId, list[LogId]] = {}
        for log, writer in writers:
            logs_of.setdefault(writer, []).append(log)
        found: dict[LogWriter, Progress | None] = {}
        for writer, logs in logs_of.items():
            recorded = self._reading.progress_in(logs, writer)
            found.update({(log, writer): recorded.get(log) for log in logs})
        return found

    def _expired(self, part: Part) -> Micros | None:
        return self._horizon if part.blob is not None and self._blobs[part.blob].begun_at < self._horizon else None

    def _blob_id(self, part: Part) -> BlobId | None:
        # A blob is listed with its first accepted part. If all parts are refused, it stays an orphan to be collected.
        if part.blob is None:
            return None
        if part.blob not in self._blob_ids:
            entry = self._blobs[part.blob]
            values = (entry.key, entry.size, entry.encoding, entry.begun_at)
            row = self._database.execute(SQL["insert_blob"], values).fetchone()
            assert row is not None
            self._blob_ids[part.blob] = BlobId(row[0])
            self._database.execute(SQL["digest_blob"], row)
        return self._blob_ids[part.blob]


def _refused_with_unit(verdict: Appended) -> Verdict:
    # A duplicate was appended before and stays, even if the rest of its unit is refused.
    return verdict if verdict.duplicate else Refused(Refusal.UNIT)
