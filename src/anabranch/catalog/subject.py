"""What a transaction with a subject may read and change, as `Catalog.writing` says; asserted by both adapters."""

from __future__ import annotations

from typing import Final

# Statements that concern more than one stream: only a transaction without a subject may use them.
ALL_STREAMS_STATEMENTS: Final = {
    "scopes",
    "put_scope",
    "drop_scope",
    "streams",
    "stream_ids_after",
    "aliases",
    "logs_after",
    "spans_of_log",
    "fragmented",
    "drop_log",
    "drop_extents",
    "leases",
    "states",
    "states_between",
    "states_among",
    "states_found",
    "states_found_between",
    "put_meta",
    "blobs_after",
    "blob_in_use",
    "extents_of_blob",
    "set_blob_dead",
    "drop_blob",
    "drop_progress_before",
    "drop_requests_before",
    "drop_changes_before",
}
