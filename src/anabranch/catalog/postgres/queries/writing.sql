-- Statements that change something, and those that lock what they read. All run behind the lock `writing`, which one
-- transaction holds at a time; the logs that commits may move meanwhile are locked one by one, in ascending id.

-- name: lock_logs
select id from logs where id = any (%s) order by id for update;

-- Nobody can append to a sealed log, so only the others need a lock.
-- name: lock_logs_of_stream
select id from logs where id in (select log from spans where stream = %s) and not sealed order by id for update;

-- name: lock_logs_of_streams
select id from logs where id in (select log from spans where stream = any (%s)) and not sealed order by id for update;

-- name: lock
select pg_advisory_xact_lock(lock_key(%s));

-- For a transaction beside others: the lock `writing`, and then that of what it is on.
-- name: lock_beside
select pg_advisory_xact_lock_shared(lock_key('writing')), pg_advisory_xact_lock(lock_key(%s));

-- The log as it is behind its lock.
-- name: lock_log
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high from logs where id = %s for update;

-- The format, a stream, the last extent of a log of it, and what the log remembers of a writer.
-- name: stream_end
select f.value, s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw,
       e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.size_end, e.data,
       w.next, w.fence, w.recent
from meta f
left join streams s on s.id = %(stream)s
left join schemas c on c.stream = s.id and c.version = s.schema_version
left join lateral (select * from extents where log = %(log)s order by start desc limit 1) e on true
left join blobs b on b.id = e.blob
left join writers w on w.log = %(log)s and w.writer = %(writer)s
where f.name = 'format';

-- What was decided to be appended, behind the lock of the log: `insert_extent`, `update_log` and `put_progress` at once.
-- name: append_part
with extent as (
    insert into extents (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low,
                         appended_high, event_low, event_high, event_reach, size_end, data)
    values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
), log as (
    update logs set length = %s, sealed = %s, fence = %s, low_water = %s, size = %s, appended_at = %s, event_high = %s
    where id = %s
)
insert into writers (log, writer, next, fence, recent, seen_at) values (%s, %s, %s, %s, %s::bigint[], %s)
on conflict (log, writer) do update
set next = excluded.next, fence = excluded.fence, recent = excluded.recent, seen_at = excluded.seen_at;

-- The stream that a name leads to, behind the lock of the name.
-- name: lock_stream_named
select pg_advisory_xact_lock(lock_key('stream ' || id)) from streams where scope = %s and name = %s;

-- What a repeated request or unit finds done is locked, which writes to the log: so the answer waits for synchronous
-- replicas as a change would. A primary that fell while it waited for them may have the first answer alone.
-- name: request_again
select operation, result from requests where id = %s for update;

-- name: piece_again
select kind, name, value from pieces where kind = %s and name = %s for update;

-- name: put_scope
insert into scopes (name, tags, created_at) values (%s, %s, %s)
on conflict (name) do update set tags = excluded.tags;

-- name: drop_scope
delete from scopes where name = %s;

-- name: insert_stream
insert into streams (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: update_stream
update streams set scope = %s, name = %s, schema_version = %s, tags = %s, sealed = %s, version = %s,
    epoch = %s, next_number = %s
where id = %s;

-- name: put_schema
insert into schemas (stream, version, columns, key_column, time_column, raw) values (%s, %s, %s, %s, %s, %s)
on conflict (stream, version) do nothing;

-- name: drop_stream
delete from streams where id = %s;

-- name: drop_segments
delete from segments where stream = %s;

-- name: drop_stream_spans
delete from spans where stream = %s;

-- name: drop_unused_schemas
delete from schemas where stream = %(stream)s
  and not exists (select 1 from logs where stream = %(stream)s) and not exists (select 1 from streams where id = %(stream)s);

-- name: put_segment
insert into segments (stream, segment, low, high, retired, head) values (%s, %s, %s, %s, %s, %s)
on conflict (stream, segment) do update set retired = excluded.retired, head = excluded.head;

-- name: put_span
insert into spans (stream, segment, "offset", log, start, stop) values (%s, %s, %s, %s, %s, %s)
on conflict (stream, segment, "offset") do update set log = excluded.log, start = excluded.start, stop = excluded.stop;

-- name: drop_spans
delete from spans where stream = %s and segment = %s;

-- name: new_log
insert into logs (stream, length, sealed, fence, low_water, size, appended_at, event_high)
values (%s, 0, false, 0, 0, 0, %s, null) returning id;

-- name: update_log
update logs set length = %s, sealed = %s, fence = %s, low_water = %s, size = %s, appended_at = %s,
    event_high = %s
where id = %s;

-- Ids of logs that a transaction is about to make: as many as a stream has open segments.
-- name: reserve_logs
select nextval(pg_get_serial_sequence('logs', 'id')) from segments where stream = %s and retired is null;

-- name: put_log
insert into logs (id, stream, length, sealed, fence, low_water, size, appended_at, event_high)
values (%s, %s, 0, false, 0, 0, 0, %s, null);

-- name: drop_log
delete from logs where id = %s;

-- name: drop_log_writers
delete from writers where log = %s;

-- name: insert_extent
insert into extents (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low, appended_high,
                     event_low, event_high, event_reach, size_end, data)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: reach_before
select event_reach from extents where log = %s and start < %s order by start desc limit 1;

-- name: drop_extents
delete from extents where log = %s and start >= %s and stop <= %s;

-- name: put_progress
insert into writers (log, writer, next, fence, recent, seen_at) values (%s, %s, %s, %s, %s, %s)
on conflict (log, writer) do update
set next = excluded.next, fence = excluded.fence, recent = excluded.recent, seen_at = excluded.seen_at;

-- name: inherit_fences
insert into writers (log, writer, next, fence, recent, seen_at)
select %(heir)s, writer, 0, fence, '{}', seen_at from writers where log = %(log)s and fence > 0
on conflict (log, writer) do update set fence = greatest(writers.fence, excluded.fence);

-- name: drop_progress_before
with old as (select log, writer from writers where seen_at < %s limit %s for update)
delete from writers r using old where r.log = old.log and r.writer = old.writer;

-- A blob that is listed already, by an earlier unit or commit that used it, keeps its row.
-- name: insert_blob
insert into blobs (key, size, encoding, begun_at) values (%s, %s, %s, %s)
on conflict (key) do update set size = excluded.size returning id;

-- name: set_blob_dead
update blobs set dead_at = %s where id = %s;

-- name: drop_blob
delete from blobs where id = %s;

-- name: put_meta
insert into meta (name, value) values (%s, %s) on conflict (name) do update set value = excluded.value;

-- name: put_lease
insert into leases (id, kind, holder, begun_at, expires_at) values (%s, %s, %s, %s, %s)
on conflict (id) do update set expires_at = excluded.expires_at;

-- name: drop_lease
delete from leases where id = %s;

-- name: record_request
insert into requests (id, operation, result, at) values (%s, %s, %s, %s);

-- name: drop_requests_before
delete from requests where id in (select id from requests where at < %s limit %s);

-- name: add_change
insert into changes (stream, at, kind, detail) values (%s, %s, %s, %s);

-- name: drop_changes_before
delete from changes where sequence in (select sequence from changes where at < %s order by sequence limit %s);

-- name: put_piece
insert into pieces (kind, name, value) values (%s, %s, %s) on conflict (kind, name) do update set value = excluded.value;

-- name: drop_piece
delete from pieces where kind = %s and name = %s;
