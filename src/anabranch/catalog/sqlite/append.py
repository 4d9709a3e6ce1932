"""The commit function on SQLite: decide units against the locked logs, then write what was accepted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import apsw

from anabranch.catalog import rows
from anabranch.catalog.sqlite.reading import SQL, SqliteReading
from anabranch.core.decide import advance_log, advance_progress, decide
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
from anabranch.model.ids import BlobId, LogId, Micros, WriterId

_Writer = tuple[LogId, WriterId]


class Appending:
    """The appends of one transaction: states are read once, changed in memory, and written together by `flush`."""

    def __init__(
        self, database: apsw.Connection, now: Micros, units: Sequence[Unit], blobs: Sequence[BlobEntry]
    ) -> None:
        self._database = database
        self._blobs = {blob.key: blob for blob in blobs}
        self._blob_ids: dict[str, BlobId] = {}
        self._reading = SqliteReading(database)
        self._horizon = self._reading.horizon() if blobs else Micros(0)
        self._now = now
        parts = [part for unit in units for part in unit.parts]
        self._logs: dict[LogId, LogState]
        self._progress: dict[_Writer, Progress | None]
        if len(parts) == 1 and parts[0].sequence is not None:
            self._look_up(parts[0].log, parts[0].sequence.writer)
        else:
            self._logs = self._reading.logs(sorted({part.log for part in parts}))
            writers = {(p.log, p.sequence.writer): None for p in parts if p.sequence is not None}
            self._progress = self._progress_of(writers)
        self._changed_logs: set[LogId] = set()
        self._changed_writers: set[_Writer] = set()
        self._extents: list[tuple[object, ...]] = []

    def unit(self, unit: Unit) -> tuple[Verdict, ...]:
        """Decide one unit, on top of those before it."""
        if unit.request is not None and (known := self._reading.request(unit.request)):
            return tuple(Appended(start, Micros(at), duplicate=True) for start, at in json.loads(known[1]))
        logs: dict[LogId, LogState] = {}
        progress: dict[_Writer, Progress | None] = {}
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
            return tuple(v if isinstance(v, Refused) else _fallen(v) for v in verdicts)
        self._logs.update(logs)
        self._progress.update(progress)
        self._changed_logs.update(logs)
        self._changed_writers.update(progress)
        self._extents += [rows.appended_values(*each, self._blob_id(each[0])) for each in accepted]
        if unit.request is not None:
            result = json.dumps([(v.start, v.appended_at) for v in verdicts if isinstance(v, Appended)])
            self._database.execute(SQL["record_request"], (unit.request, "append", result, self._now))
        return tuple(verdicts)

    def flush(self) -> bool:
        """Write what was accepted; False where there was nothing."""
        if not self._extents:
            return False
        self._write("insert_extent", self._extents)
        self._write("update_log", [rows.log_values(self._logs[log]) for log in sorted(self._changed_logs)])
        kept = []
        for log, writer in sorted(self._changed_writers):
            progress = self._progress[log, writer]
            assert progress is not None
            kept.append((log, writer, progress.next, progress.fence, rows.pack_recent(progress.recent), self._now))
        self._write("put_progress", kept)
        return True

    def _write(self, name: str, values: Sequence[tuple[object, ...]]) -> None:
        if len(values) == 1:  # a lone event on an idle store: its caller waits for each microsecond
            self._database.execute(SQL[name], values[0])
        else:
            self._database.executemany(SQL[name], values)

    def _look_up(self, log: LogId, writer: WriterId) -> None:
        """One log and one writer, in one statement."""
        row = self._database.execute(SQL["log_and_progress"], (writer, log)).fetchone()
        self._logs = {} if row is None else {log: rows.log(row[:9])}
        self._progress = {(log, writer): None if row is None or row[9] is None else rows.progress(row[9:])}

    def _progress_of(self, writers: Iterable[_Writer]) -> dict[_Writer, Progress | None]:
        logs_of: dict[WriterId, list[LogId]] = {}
        for log, writer in writers:
            logs_of.setdefault(writer, []).append(log)
        found: dict[_Writer, Progress | None] = {}
        for writer, logs in logs_of.items():
            known = self._reading.progress_in(logs, writer)
            found.update({(log, writer): known.get(log) for log in logs})
        return found

    def _expired(self, part: Part) -> Micros | None:
        return self._horizon if part.blob is not None and self._blobs[part.blob].begun_at < self._horizon else None

    def _blob_id(self, part: Part) -> BlobId | None:
        # A blob is listed with its first accepted part: one whose parts were all refused stays an orphan to collect.
        if part.blob is None:
            return None
        if part.blob not in self._blob_ids:
            entry = self._blobs[part.blob]
            values = (entry.key, entry.size, entry.encoding, entry.begun_at)
            row = self._database.execute(SQL["insert_blob"], values).fetchone()
            assert row is not None
            self._blob_ids[part.blob] = BlobId(row[0])
        return self._blob_ids[part.blob]


def _fallen(verdict: Appended) -> Verdict:
    # What had landed before stays landed, even where the rest of its unit is refused.
    return verdict if verdict.duplicate else Refused(Refusal.UNIT)
