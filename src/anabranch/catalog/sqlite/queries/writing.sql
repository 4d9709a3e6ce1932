-- Statements that change something. All run behind `begin immediate`.

-- name: put_scope
insert into scopes (name, tags, created_at) values (?, ?, ?)
on conflict (name) do update set tags = excluded.tags;

-- name: drop_scope
delete from scopes where name = ?;

-- name: insert_stream
insert into streams (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_stream
update streams set scope = ?, name = ?, schema_version = ?, tags = ?, sealed = ?, version = ?, epoch = ?, next_number = ?
where id = ?;

-- name: put_schema
insert into schemas (stream, version, columns, key_column, time_column, raw) values (?, ?, ?, ?, ?, ?)
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
insert into segments (stream, segment, low, high, retired, head) values (?, ?, ?, ?, ?, ?)
on conflict (stream, segment) do update set retired = excluded.retired, head = excluded.head;

-- name: put_span
insert into spans (stream, segment, "offset", log, start, stop) values (?, ?, ?, ?, ?, ?)
on conflict (stream, segment, "offset") do update set log = excluded.log, start = excluded.start, stop = excluded.stop;

-- name: drop_spans
delete from spans where stream = ? and segment = ?;

-- name: new_log
insert into logs (stream, length, sealed, fence, low_water, size, appended_at, event_high)
values (?, 0, 0, 0, 0, 0, ?, null) returning id;

-- name: update_log
update logs set length = ?, sealed = ?, fence = ?, low_water = ?, size = ?, appended_at = ?, event_high = ? where id = ?;

-- name: drop_log
delete from logs where id = ?;

-- name: drop_log_writers
delete from writers where log = ?;

-- name: insert_extent
insert into extents (log, start, stop, blob, encoding, at, length, row, schema, checksum, appended_low, appended_high,
                     event_low, event_high, event_reach, size_end, data)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: reach_before
select event_reach from extents where log = ? and start < ? order by start desc limit 1;

-- name: drop_extents
delete from extents where log = ? and start >= ? and stop <= ?;

-- name: put_progress
insert into writers (log, writer, next, fence, recent, seen_at) values (?, ?, ?, ?, ?, ?)
on conflict (log, writer) do update
set next = excluded.next, fence = excluded.fence, recent = excluded.recent, seen_at = excluded.seen_at;

-- name: inherit_fences
insert into writers (log, writer, next, fence, recent, seen_at)
select :heir, writer, 0, fence, x'', seen_at from writers where log = :log and fence > 0
on conflict (log, writer) do update set fence = max(fence, excluded.fence);

-- name: drop_progress_before
delete from writers where (log, writer) in (select log, writer from writers where seen_at < ? limit ?);

-- A blob that is listed already, by an earlier unit or commit that used it, keeps its row.
-- name: insert_blob
insert into blobs (key, size, encoding, begun_at) values (?, ?, ?, ?)
on conflict (key) do update set size = excluded.size returning id;

-- name: set_blob_dead
update blobs set dead_at = ? where id = ?;

-- name: drop_blob
delete from blobs where id = ?;

-- name: put_meta
insert into meta (name, value) values (?, ?) on conflict (name) do update set value = excluded.value;

-- name: put_lease
insert into leases (id, kind, holder, begun_at, expires_at) values (?, ?, ?, ?, ?)
on conflict (id) do update set expires_at = excluded.expires_at;

-- name: drop_lease
delete from leases where id = ?;

-- name: record_request
insert into requests (id, operation, result, at) values (?, ?, ?, ?);

-- name: drop_requests_before
delete from requests where id in (select id from requests where at < ? limit ?);

-- name: add_change
insert into changes (stream, at, kind, detail) values (?, ?, ?, ?);

-- name: drop_changes_before
delete from changes where sequence in (select sequence from changes where at < ? order by sequence limit ?);

-- name: put_piece
insert into pieces (kind, name, value) values (?, ?, ?) on conflict (kind, name) do update set value = excluded.value;

-- name: drop_piece
delete from pieces where kind = ? and name = ?;
