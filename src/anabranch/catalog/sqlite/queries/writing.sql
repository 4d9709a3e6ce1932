-- Statements that change something. All run after `begin immediate`. `row_digest` is `anabranch.catalog.digests`; for what
-- every commit writes (`insert_extent`, `update_log`, `put_progress`,
-- `put_producer`) it is computed before the statement runs and passed as the last value.

-- name: put_scope
insert into scopes (name, tags, created_at, digest) values (?1, ?2, ?3, row_digest(?1, ?2, ?3))
on conflict (name) do update
set tags = excluded.tags, digest = row_digest(scopes.name, excluded.tags, scopes.created_at);

-- name: drop_scope
delete from scopes where name = ?;

-- name: insert_stream
insert into streams (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, segments,
                     spans, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, 0, row_digest(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, 0));

-- name: update_stream
update streams
set scope = ?1, name = ?2, schema_version = ?3, tags = ?4, sealed = ?5, version = ?6, epoch = ?7, next_number = ?8,
    digest = row_digest(id, ?1, ?2, ?3, ?4, created_at, ?5, ?6, ?7, ?8, segments, spans)
where id = ?9;

-- The numbers of segments and spans of a stream, by which reads detect lost rows.
-- name: count_parts
update streams
set segments = p.segments, spans = p.spans,
    digest = row_digest(id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number,
                        p.segments, p.spans)
from (
    select (select count(*) from segments where stream = ?1) as segments,
           (select count(*) from spans where stream = ?1) as spans
) p
where id = ?1;

-- name: put_schema
insert into schemas (stream, version, columns, key_column, time_column, raw, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, row_digest(?1, ?2, ?3, ?4, ?5, ?6))
on conflict (stream, version) do nothing;

-- name: drop_stream
delete from streams where id = ?;

-- name: drop_segments
delete from segments where stream = ?;

-- name: drop_stream_spans
delete from spans where stream = ?;

-- name: drop_unused_schemas
delete from schemas where stream = :stream
  and not exists (select 1 from logs where stream = :stream) and not exists (select 1 from streams where id = :stream);

-- name: put_segment
insert into segments (stream, segment, low, high, retired, head, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, row_digest(?1, ?2, ?3, ?4, ?5, ?6))
on conflict (stream, segment) do update
set low = excluded.low, high = excluded.high, retired = excluded.retired, head = excluded.head, digest = excluded.digest;

-- name: put_span
insert into spans (stream, segment, "offset", log, start, stop, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, row_digest(?1, ?2, ?3, ?4, ?5, ?6))
on conflict (stream, segment, "offset") do update
set log = excluded.log, start = excluded.start, stop = excluded.stop, digest = excluded.digest;

-- name: drop_spans
delete from spans where stream = ? and segment = ?;

-- name: new_log
insert into logs (stream, length, sealed, fence, low_water, size, appended_at, event_high, digest)
values (?, 0, 0, 0, 0, 0, ?, null, 0) returning id;

-- name: digest_log
update logs
set digest = row_digest(id, stream, length, sealed, fence, low_water, size, appended_at, event_high) where id = ?;

-- name: update_log
update logs
set length = ?1, sealed = ?2, fence = ?3, low_water = ?4, size = ?5, appended_at = ?6, event_high = ?7, digest = ?10
where id = ?8 and stream = ?9;

-- name: drop_log
delete from logs where id = ?;

-- name: drop_log_writers
delete from writers where log = ?;

-- name: insert_extent
insert into extents (log, start, stop, blob, encoding, at, length, row, schema, checksum, appended_low, appended_high,
                     event_low, event_high, event_reach, size_end, data, digest)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: extent_times_before
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.digest
from extents e left join blobs b on b.id = e.blob
where e.log = ? and e.start < ? order by e.start desc limit 1;

-- name: drop_extents
delete from extents where log = ? and start >= ? and stop <= ?;

-- name: put_progress
insert into writers (log, writer, next, fence, recent, seen_at, digest) values (?, ?, ?, ?, ?, ?, ?)
on conflict (log, writer) do update
set next = excluded.next, fence = excluded.fence, recent = excluded.recent, seen_at = excluded.seen_at,
    digest = excluded.digest;

-- name: put_producer
insert into producers (stream, producer, epoch, last, answers, seen_at, digest) values (?, ?, ?, ?, ?, ?, ?)
on conflict (stream, producer) do update
set epoch = excluded.epoch, last = excluded.last, answers = excluded.answers, seen_at = excluded.seen_at,
    digest = excluded.digest;

-- name: drop_producer
delete from producers where stream = ? and producer = ?;

-- name: drop_stream_producers
delete from producers where stream = ?;

-- name: copy_fences
insert into writers (log, writer, next, fence, recent, seen_at, digest)
select :successor, writer, 0, fence, x'', seen_at, row_digest(:successor, writer, 0, fence, x'', seen_at)
from writers where log = :log and fence > 0
on conflict (log, writer) do update
set fence = max(fence, excluded.fence),
    digest = row_digest(log, writer, next, max(fence, excluded.fence), recent, seen_at);

-- name: drop_progress_before
delete from writers where (log, writer) in (select log, writer from writers where seen_at < ? limit ?);

-- A blob that is listed already, by an earlier unit or commit that used it, keeps its row.
-- name: insert_blob
insert into blobs (key, size, encoding, begun_at, digest) values (?, ?, ?, ?, 0)
on conflict (key) do update set size = excluded.size returning id;

-- name: digest_blob
update blobs set digest = row_digest(key, id, size, encoding, begun_at, dead_at) where id = ?;

-- name: set_blob_dead
update blobs set dead_at = ?1, digest = row_digest(key, id, size, encoding, begun_at, ?1) where id = ?2;

-- name: drop_blob
delete from blobs where id = ?;

-- name: put_meta
insert into meta (name, value, digest) values (?1, ?2, row_digest(?1, ?2))
on conflict (name) do update set value = excluded.value, digest = excluded.digest;

-- name: put_lease
insert into leases (id, kind, holder, begun_at, expires_at, digest) values (?1, ?2, ?3, ?4, ?5, row_digest(?1, ?2, ?3, ?4, ?5))
on conflict (id) do update
set expires_at = excluded.expires_at, digest = row_digest(id, kind, holder, begun_at, excluded.expires_at);

-- name: drop_lease
delete from leases where id = ?;

-- name: record_request
insert into requests (id, operation, result, at, digest) values (?1, ?2, ?3, ?4, row_digest(?1, ?2, ?3, ?4));

-- name: drop_requests_before
delete from requests where id in (select id from requests where at < ? limit ?);

-- name: add_change
insert into changes (stream, at, kind, detail, digest) values (?, ?, ?, ?, 0);

-- name: digest_last_change
update changes set digest = row_digest(sequence, stream, at, kind, detail) where sequence = last_insert_rowid();

-- name: drop_changes_before
delete from changes where sequence in (select sequence from changes where at < ? order by sequence limit ?);

-- name: put_alias
insert into aliases (name, stream, digest) values (?1, ?2, row_digest(?1, ?2))
on conflict (name) do update set stream = excluded.stream, digest = excluded.digest;

-- name: drop_alias
delete from aliases where name = ?;

-- name: put_state
insert into states (kind, key, lookup, value, digest) values (?1, ?2, ?3, ?4, row_digest(?1, ?2, ?3, ?4))
on conflict (kind, key) do update
set lookup = excluded.lookup, value = excluded.value, digest = excluded.digest;

-- name: drop_state
delete from states where kind = ? and key = ?;
