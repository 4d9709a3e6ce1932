"""Every error the store raises, in one tree. A new type exists only where a caller would react differently.

AnabranchError
├── InvalidArgument (also ValueError)   the call can never succeed as written
│   ├── InvalidName · InvalidKey · InvalidCut · InvalidPointer · InvalidSql
│   ├── SchemaMismatch                  a column is missing, unknown or of another type
│   └── TooLarge                        an event or batch over its limit
├── NotFound (also LookupError)         StoreNotFound · EventNotFound · PipelineNotFound · JobNotFound · GroupNotFound
│   ├── TransactionNotFound
│   ├── ScopeNotFound                   ScopeRenamed
│   └── StreamNotFound                  StreamRenamed
├── AlreadyExists                       ScopeExists · StreamExists
├── ScopeNotEmpty
├── StreamSealed                        no event can be appended any more
├── AppendRefused                       the commit decided against an append; nothing was written
│   ├── Fenced · OutOfSequence · WriterUnknown · ConditionFailed · SegmentSealed · BlobExpired
├── AppendUncertain                     the outcome is unknown: ask for the writer's progress
├── Truncated                           the position lies before the stream's head
├── CorruptStore                        CorruptBlob · BlobMissing · CorruptCatalog · CorruptArchive
├── StoreUnavailable (also OSError)     DiskFull · ReadOnlyStore · StoreBusy
├── KeyMissing · WrongKey               the store is encrypted, under a key that was not given, or that is another
├── FormatTooNew                        the store was written by a newer release
├── PipelineRunning                     another process runs this pipeline
├── JobRunning                          another process runs this job
├── JobStopped                          it was paused, cancelled or has failed
├── PipelineFailed                      one of its queries failed while it ran
├── ReaderNotInGroup                    its group goes on without this reader: open it again
├── Conflict                            another client changed what this plan was made from
├── LeaseExpired
├── TransactionAborted                  none of its events will ever be seen: do the work again
├── RequestMismatch                     a request id was used again for something else
├── MissingExtra (also ImportError)     an optional dependency is not installed
└── Closed                              the object was closed
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "AlreadyExists",
    "AnabranchError",
    "AppendRefused",
    "AppendUncertain",
    "BlobExpired",
    "BlobMissing",
    "Closed",
    "ConditionFailed",
    "Conflict",
    "CorruptArchive",
    "CorruptBlob",
    "CorruptCatalog",
    "CorruptStore",
    "DiskFull",
    "EventNotFound",
    "Fenced",
    "FormatTooNew",
    "GroupNotFound",
    "InvalidArgument",
    "InvalidCut",
    "InvalidKey",
    "InvalidName",
    "InvalidPointer",
    "InvalidSql",
    "JobNotFound",
    "JobRunning",
    "JobStopped",
    "KeyMissing",
    "LeaseExpired",
    "MissingExtra",
    "NotFound",
    "OutOfSequence",
    "PipelineFailed",
    "PipelineNotFound",
    "PipelineRunning",
    "ReadOnlyStore",
    "ReaderNotInGroup",
    "RequestMismatch",
    "SchemaMismatch",
    "ScopeExists",
    "ScopeNotEmpty",
    "ScopeNotFound",
    "ScopeRenamed",
    "SegmentSealed",
    "StoreBusy",
    "StoreNotFound",
    "StoreUnavailable",
    "StreamExists",
    "StreamNotFound",
    "StreamRenamed",
    "StreamSealed",
    "TooLarge",
    "TransactionAborted",
    "TransactionNotFound",
    "Truncated",
    "WriterUnknown",
    "WrongKey",
]


class AnabranchError(Exception):
    """The root of the tree. `str()` is one sentence for a person; fields carry the parts for a program."""


class InvalidArgument(AnabranchError, ValueError):
    """The call can never succeed as written."""


class InvalidName(InvalidArgument):
    """A scope or stream name breaks the rules of `anabranch.model.names`."""


class InvalidKey(InvalidArgument):
    """A routing key is of a type that has no canonical text."""


class InvalidCut(InvalidArgument):
    """A stream cut's text is malformed, or the cut does not cover its stream's key space."""


class InvalidPointer(InvalidArgument):
    """An event pointer's text is malformed."""


class InvalidSql(InvalidArgument):
    """A pipeline or query text can't be understood; `line` counts from 1 where it is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class SchemaMismatch(InvalidArgument):
    """Data and the stream's schema disagree; `column` names the first that does, `row` its row from 0."""

    def __init__(self, message: str, *, column: str | None = None, row: int | None = None) -> None:
        super().__init__(message)
        self.column = column
        self.row = row


class TooLarge(InvalidArgument):
    """An event, batch, tag or name exceeds `limit` (in the unit the message says)."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(f"{what} is {size:,} bytes, over the limit of {limit:,}")
        self.size = size
        self.limit = limit


class NotFound(AnabranchError, LookupError):
    """What was named does not exist."""

    def __str__(self) -> str:  # LookupError's repr-like text is not for people
        return str(self.args[0]) if self.args else type(self).__name__


class StoreNotFound(NotFound):
    """There is no store where one was said to be."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"there is no store in {place}; its first scope makes it: anabranch --store {place} scope create NAME"
        )
        self.place = place


class ScopeNotFound(NotFound):
    """No scope has this name."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"there is no scope '{scope}'; create it with: anabranch scope create {scope}")
        self.scope = scope


class ScopeRenamed(ScopeNotFound):
    """That was the name of a scope which is called `name` now."""

    def __init__(self, scope: str, name: str) -> None:
        NotFound.__init__(self, f"scope '{scope}' is called '{name}' now")
        self.scope = scope
        self.name = name


class StreamNotFound(NotFound):
    """No stream has this name or id (any more)."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"there is no stream '{stream}'")
        self.stream = stream


class StreamRenamed(StreamNotFound):
    """That was the name of a stream which is called `name` now."""

    def __init__(self, stream: str, name: str) -> None:
        NotFound.__init__(self, f"stream '{stream}' is called '{name}' now")
        self.stream = stream
        self.name = name


class EventNotFound(NotFound):
    """The pointer is well formed, but its segment or offset does not exist in the stream."""


class PipelineNotFound(NotFound):
    """No pipeline has this name."""


class JobNotFound(NotFound):
    """No job has this id."""

    def __init__(self, job: str) -> None:
        super().__init__(f"there is no job '{job}'; anabranch job list shows those there are")
        self.job = job


class JobRunning(AnabranchError):
    """Another process runs the job, and only one can. It may be waited for, or paused."""

    def __init__(self, job: str) -> None:
        super().__init__(f"another process runs job {job}; wait for it, or pause it with: anabranch job pause {job}")
        self.job = job


class JobStopped(AnabranchError):
    """The job stopped before it was done: `state` is paused, cancelled or failed. What it had moved stays, unless it
    was cancelled; resuming it goes on from there."""

    def __init__(self, job: str, state: str, why: str | None = None) -> None:
        super().__init__(f"job {job} {'has ' if state == 'failed' else 'was '}{state}" + (f": {why}" if why else ""))
        self.job = job
        self.state = state
        self.why = why


class GroupNotFound(NotFound):
    """No reader group has this name (any more)."""

    def __init__(self, group: str) -> None:
        super().__init__(f"there is no reader group '{group}'")
        self.group = group


class PipelineRunning(AnabranchError):
    """Another process runs the pipeline, and only one can. It may be waited for, or stopped."""

    def __init__(self, name: str, pid: int, host: str) -> None:
        super().__init__(
            f"pipeline '{name}' runs already, in process {pid} on {host}; stop it with: anabranch pipeline stop {name}"
        )
        self.name = name
        self.pid = pid
        self.host = host


class PipelineFailed(AnabranchError):
    """A query of the pipeline failed while it ran. What it had published stays; running it again goes on from there."""

    def __init__(self, name: str, target: str, why: str) -> None:
        super().__init__(f"pipeline '{name}' failed at {target}: {why}")
        self.name = name
        self.target = target
        self.why = why


class AlreadyExists(AnabranchError):
    """What was to be created is already there."""


class ScopeExists(AlreadyExists):
    """A scope of this name exists."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"scope '{scope}' exists already")
        self.scope = scope


class StreamExists(AlreadyExists):
    """A stream of this name exists, or one of which this is an alias: `alias_of`."""

    def __init__(self, stream: str, alias_of: str | None = None) -> None:
        if alias_of is None:
            super().__init__(f"stream '{stream}' exists already")
        else:
            super().__init__(f"'{stream}' is an alias of stream '{alias_of}'; free it with: anabranch unalias {stream}")
        self.stream = stream
        self.alias_of = alias_of


class ScopeNotEmpty(AnabranchError):
    """The scope still holds streams."""

    def __init__(self, scope: str, streams: int) -> None:
        super().__init__(
            f"scope '{scope}' still holds {streams} stream(s); delete them too with: anabranch scope delete {scope} --recursive"
        )
        self.scope = scope
        self.streams = streams


class StreamSealed(AnabranchError):
    """The stream is sealed: it can be read, never appended to or scaled."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream '{stream}' is sealed and takes no more events")
        self.stream = stream


class AppendRefused(AnabranchError):
    """The commit decided against an append. Nothing of its atomic unit was written."""


class Fenced(AppendRefused):
    """A newer owner raised the fence above the one this append carried."""

    def __init__(self, carried: int, fence: int) -> None:
        super().__init__(f"the append carried fence {carried}, but the log demands {fence}: another writer took over")
        self.carried = carried
        self.fence = fence


class OutOfSequence(AppendRefused):
    """Sequence numbers of a writer are contiguous per log; this batch leaves a gap."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"the writer's next sequence number is {expected}, not {got}")
        self.expected = expected
        self.got = got


class WriterUnknown(AppendRefused):
    """The log has forgotten this writer's progress, so it can't tell a retry from a new batch."""

    def __init__(self, writer: str, sequence: int) -> None:
        super().__init__(f"nothing is known of writer '{writer}' that could place its sequence number {sequence}")
        self.writer = writer
        self.sequence = sequence


class ConditionFailed(AppendRefused):
    """A conditional append expected another tail."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"the append expected the segment to hold {expected} events; it holds {actual}")
        self.expected = expected
        self.actual = actual


class SegmentSealed(AppendRefused):
    """The segment was sealed by a scale or a seal. Writers re-route by themselves; a caller sees this only in `cause`."""

    def __init__(self, segment: str) -> None:
        super().__init__(f"segment {segment} is sealed")
        self.segment = segment


class BlobExpired(AppendRefused):
    """The bytes were written before the collector's horizon, so they may be gone: write them again."""

    def __init__(self, written_at: int, horizon: int) -> None:
        super().__init__(f"the blob was begun at {written_at} µs, behind the collector's horizon {horizon} µs")
        self.written_at = written_at
        self.horizon = horizon


class AppendUncertain(AnabranchError):
    """Whether the append took place is unknown. It must not be retried blindly: the writer's progress tells."""


class Truncated(AnabranchError):
    """The position lies before the stream's head. `head` is the first offset that can still be read, by segment text."""

    def __init__(self, stream: str, head: Mapping[str, int]) -> None:
        super().__init__(f"that part of '{stream}' was truncated; its head is now {dict(head)}")
        self.stream = stream
        self.head = dict(head)


class CorruptStore(AnabranchError):
    """What the store finds on disk contradicts what it once wrote."""


class CorruptBlob(CorruptStore):
    """A blob's bytes are not those that were written."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"blob {key} is corrupt: {why}")
        self.key = key
        self.why = why


class BlobMissing(CorruptStore):
    """A blob that the catalog names is not in the blob store."""

    def __init__(self, key: str, place: str | None = None) -> None:
        """`place`: the file it is, where that was attached from somewhere else."""
        super().__init__(f"blob {key} is missing" if place is None else f"the attached file {place} is missing")
        self.key = key


class CorruptCatalog(CorruptStore):
    """The catalog's database is damaged or is not a catalog."""


class CorruptArchive(CorruptStore):
    """A file of an archive is missing, changed or does not belong there. Nothing was imported; another copy may do."""

    def __init__(self, place: str, file: str, why: str) -> None:
        super().__init__(f"the archive {place} is not whole: {file} {why}")
        self.place = place
        self.file = file
        self.why = why


class StoreUnavailable(AnabranchError, OSError):
    """The operating system or the database refused; nothing was acknowledged. Trying again later may help."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class DiskFull(StoreUnavailable):
    """No space is left for the write."""


class ReadOnlyStore(StoreUnavailable):
    """The folder or database can't be written."""


class StoreBusy(StoreUnavailable):
    """Another process held the store's lock for longer than the stated time."""


class KeyMissing(AnabranchError):
    """The store is encrypted, and the key of this id was not given."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the store is encrypted, and its key '{key_id}' was not given: give it by keys= or --keys")
        self.key_id = key_id


class WrongKey(AnabranchError):
    """A key was given under the right id, and is another than the store was encrypted with."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the key '{key_id}' that was given is not the one that the store was encrypted with")
        self.key_id = key_id


class FormatTooNew(AnabranchError):
    """The store was written by a newer release of this software."""

    def __init__(self, what: str, found: int, supported: int) -> None:
        super().__init__(f"{what} has format {found}; this release reads up to {supported}. Please upgrade anabranch")
        self.found = found
        self.supported = supported


class ReaderNotInGroup(AnabranchError):
    """The group goes on without this reader: it was presumed dead, taken offline or opened again elsewhere, or the group
    was reset. What it read since its last accepted position is read by others; opening it again is safe."""

    def __init__(self, group: str, reader: str) -> None:
        super().__init__(f"reader '{reader}' is in group '{group}' no more; others read what it had not accepted")
        self.group = group
        self.reader = reader


class Conflict(AnabranchError):
    """Another client changed what this plan was made from. Planning again is safe."""


class LeaseExpired(AnabranchError):
    """The lease ran out before its holder renewed it, so what it protected may be gone."""


class TransactionNotFound(NotFound):
    """There is no transaction of this id, or it ended long ago."""

    def __init__(self, ident: str) -> None:
        super().__init__(f"there is no transaction '{ident}', or it ended long ago")
        self.id = ident


class TransactionAborted(AnabranchError):
    """The transaction is over and none of its events will ever be seen."""

    def __init__(self, ident: str, reason: str | None) -> None:
        super().__init__(f"transaction '{ident}' was aborted" + ("" if reason is None else f": {reason}"))
        self.id = ident
        self.reason = reason


class RequestMismatch(AnabranchError):
    """A request id that was used for one operation came with another."""


class MissingExtra(AnabranchError, ImportError):
    """An optional dependency is not installed; the message says which extra brings it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs an optional part of anabranch; install it with: pip install 'anabranch[{extra}]'"
        )
        self.extra = extra


class Closed(AnabranchError):
    """The store, writer or reader was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"this {what} is closed")
        self.what = what
