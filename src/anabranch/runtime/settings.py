"""What a user may set when a store is opened."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch import limits


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults are right for one machine. Sizes in bytes, times in µs unless the name says otherwise.

    `commits_in_flight_max`: how many commits are written at the same time; `pending_bytes_max`: how much of a writer may
    wait for them. None takes the limit for a folder, or the one for an object store.
    `event_bytes_max`: an event beyond this is written ahead, into a blob of its own; `large_event_bytes_max`: one beyond this
    is refused.
    `history_bytes_per_s_max`: how fast a process fetches what is no fresh commit from an object store; None disables.
    `verify_ahead`: a reader has the checksum of the large message that comes next made beside it. Off for an object store, from which nothing is fetched that nobody asked for.
    `blob_request_s`: what one request to an object store may take; `blob_deadline_s`: after this, a call to it asks no more.
    `maintenance_s`: run compaction and collection in the background every so many seconds; None disables.
    `manifest_s`: how often that upkeep copies the catalog among the blobs, so that it can be rebuilt; None disables.
    `scaling_s`: in the background, sample the load of streams that are scaled by it every so many seconds, and scale them;
    None leaves that to other processes. Ten is a good number.
    `scaling_short_us`, `scaling_long_us`: the windows in which a burst and a lull are seen; `scaling_split_rest_us`,
    `scaling_merge_rest_us`: how long a new segment is left alone before it may be split, and before it may be merged.
    To be the same in all processes that scale a store.
    `retention_s`: how often that upkeep truncates streams as their retention policies say; None disables.
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
    tail_poll_us_max: int = limits.TAIL_POLL_US_MAX
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
    scaling_split_rest_us: int = limits.SCALING_SHORT_US
    scaling_merge_rest_us: int = limits.SCALING_LONG_US
