"""The settings of an opened store."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.times import TimeRules


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an opened store. The defaults suit one machine. Sizes are in bytes, times in µs, unless the name
    says otherwise.

    - `inline_bytes_max`: a commit up to this size is stored in the catalog instead of a blob.
    - `commit_bytes_max`: how much is gathered into one commit; a larger batch is still committed whole.
    - `pipeline_bytes_min`: a smaller commit waits for the one in progress instead of starting beside it.
    - `commits_in_flight_max`: how many commits are written at the same time. None uses the limit for a folder, or the
      one for an object store.
    - `pending_bytes_max`: how much of a writer's data may wait for them. None as above.
    - `event_bytes_max`: a larger event is written ahead, to a blob of its own.
    - `large_event_bytes_max`: a larger event is refused.
    - `read_batch_bytes_max`: how much a reader puts into one batch, unless a single event is larger.
    - `staged_bytes_max`: how much a transaction, or a task, holds in memory of one stream before it writes a blob.
    - `history_bytes_per_s_max`: how fast a process fetches older data (all but recent commits) from an object store;
      None disables the limit.
    - `tail_cache_bytes_max`, `history_cache_bytes_max`: how much a process keeps of recent commits, and of older data,
      that it has fetched from an object store. The second also bounds ranges of history that were read ahead.
    - `tail_poll_us_max`: how long a follower waits between two looks for commits of other processes, at most.
    - `verify_ahead`: a reader verifies the checksum of the next large message in a parallel task. Off for an object
      store, from which only requested data is fetched.
    - `catalog_lock_s`: how long a call waits for the catalog's lock, and for an unreachable server.
    - `catalog_answer_s`: how long PostgreSQL may take to answer, excluding that; then the connection is dropped.
    - `blob_request_s`: how long one request to an object store may take.
    - `blob_deadline_s`: how long a call to an object store keeps retrying.
    - `horizon_us`: how long an unused file and an unfinished upload are kept before they are collected.
    - `maintenance_s`: how often to run compaction and collection in the background; None disables.
    - `manifest_s`: how often this upkeep copies the catalog to the blobs, so that it can be rebuilt; None disables.
    - `retention_s`: how often this upkeep truncates streams by their retention policies; None disables.
    - `scaling_s`: how often to sample, in the background, the load of streams that scale by load, and scale them;
      None leaves that to other processes. Ten is a good value.
    - `scaling_short_us`, `scaling_long_us`: the windows that detect a burst and a lull. These and the next two must
      be the same in all processes that scale a store.
    - `scaling_split_cooldown_us`, `scaling_merge_cooldown_us`: how long after its creation a segment may be split, or merged.
    - `time_zone`: the zone of times without one: an IANA name such as `Europe/Berlin`; `refuse` refuses such times;
      None interprets them as UTC and warns once per process (TimeWarning).
    - `truncate_times`: cut off digits beyond µs, instead of refusing such times.
    - `implausible_times`: accept integers that are a likely time only in another unit than µs, such as
      `int(time.time())`, with one TimeWarning per process, instead of refusing them.
    - `shared_files`: files and folders created on this machine get the modes that the process's umask leaves, so that
      a group can share a store. Otherwise only their owner has access, 0600 and 0700; see `anabranch.runtime.access`.
    """

    inline_bytes_max: int = limits.INLINE_BYTES_MAX
    commit_bytes_max: int = limits.COMMIT_BYTES_MAX
    commits_in_flight_max: int | None = None
    pending_bytes_max: int | None = None
    pipeline_bytes_min: int = limits.PIPELINE_BYTES_MIN
    event_bytes_max: int = limits.EVENT_BYTES_MAX
    large_event_bytes_max: int = limits.LARGE_EVENT_BYTES_MAX
    horizon_us: int = limits.HORIZON_US
    catalog_lock_s: float = limits.CATALOG_LOCK_S
    catalog_answer_s: float = limits.CATALOG_ANSWER_S
    tail_poll_us_max: int = limits.TAIL_POLL_US_MAX
    staged_bytes_max: int = limits.STAGED_BYTES_MAX
    read_batch_bytes_max: int = limits.READ_BYTES_MAX
    blob_request_s: float = limits.BLOB_REQUEST_S
    blob_deadline_s: float = limits.BLOB_DEADLINE_S
    verify_ahead: bool = True
    tail_cache_bytes_max: int = limits.TAIL_CACHE_BYTES_MAX
    history_cache_bytes_max: int = limits.HISTORY_CACHE_BYTES_MAX
    history_bytes_per_s_max: int | None = None
    maintenance_s: float | None = None
    manifest_s: float | None = limits.MANIFEST_S
    retention_s: float | None = limits.RETENTION_S
    scaling_s: float | None = None
    scaling_short_us: int = limits.SCALING_SHORT_US
    scaling_long_us: int = limits.SCALING_LONG_US
    scaling_split_cooldown_us: int = limits.SCALING_SHORT_US
    scaling_merge_cooldown_us: int = limits.SCALING_LONG_US
    shared_files: bool = False
    time_zone: str | None = None
    truncate_times: bool = False
    implausible_times: bool = False

    def __post_init__(self) -> None:
        """Raises InvalidArgument for an unknown time zone, and for what is no number where one is expected."""
        for each in fields(self):
            kind, _, rest = str(each.type).partition(" | ")
            value = getattr(self, each.name)
            is_number = isinstance(value, Real) and value == value  # NaN is none
            if kind in ("int", "float") and not (is_number or (rest and value is None)):
                raise InvalidArgument(f"expected the setting {each.name} as a number, got {value!r:.100}")
        self.times  # noqa: B018 - looks up the zone

    @property
    def times(self) -> TimeRules:
        """How times are interpreted."""
        return TimeRules(self.time_zone, self.truncate_times, self.implausible_times)
