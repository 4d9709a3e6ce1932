-- Statements that change something, and those that lock the rows they read. All run under the lock `writing`, which one
-- transaction holds at a time; the logs that concurrent commits may change are locked one by one, in ascending id.

-- name: lock_logs
select id from logs where id = any (%s) order by id for update;

-- Nobody can append to a sealed log, so only the others need a lock.
-- name: lock_logs_of_stream
select id from logs where id in (select log from spans where stream = %s) and not sealed order by id for update;

-- name: lock_logs_of_streams
select id from logs where id in (select log from spans where stream = any (%s)) and not sealed order by id for update;

-- name: lock
select pg_advisory_xact_lock(lock_key(%s));

-- For a transaction with a subject: the lock `writing`, shared, and then that of the subject.
-- name: lock_shared
select pg_advisory_xact_lock_shared(lock_key('writing')), pg_advisory_xact_lock(lock_key(%s));

-- The log, read under its lock.
-- name: lock_log
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high, sound(logs)
from logs where id = %s for update;

-- The format, a stream, the last extent of one of its logs, and a writer's progress in that log.
-- name: log_end
select f.value, s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       s.segments, s.spans, sound(s), c.stream, c.version, c.columns, c.key_column, c.time_column, c.raw, sound(c),
       e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data,
       e.digest = extents_digest(e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema,
                                 e.checksum, e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach,
                                 e.size_end),
       w.log, w.writer, w.next, w.fence, w.recent, w.seen_at, sound(w)
from meta f
left join streams s on s.id = %(stream)s
left join schemas c on c.stream = s.id and c.version = s.schema_version
left join lateral (select * from extents where log = %(log)s order by start desc limit 1) e on true
left join blobs b on b.id = e.blob
left join writers w on w.log = %(log)s and w.writer = %(writer)s
where f.name = 'format';

-- An append that was decided under the lock of the log: `insert_extent`, `update_log` and `put_progress` at once.
-- name: append_part
with given as materialized (
    select %s::bigint as log, %s::bigint as start, %s::bigint as stop, %s::bigint as blob, %s::text as encoding,
           %s::bigint as "at", %s::bigint as length, %s::bigint as row, %s::integer as schema, %s::bigint as checksum,
           %s::bigint as appended_low, %s::bigint as appended_high, %s::bigint as event_low, %s::bigint as event_high,
           %s::bigint as event_reach, %s::bigint as size_end, %s::bytea as data, %s::text as key
), extent as (
    insert into extents (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low,
                         appended_high, event_low, event_high, event_reach, size_end, digest, data)
    select log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low, appended_high, event_low,
           event_high, event_reach, size_end,
           extents_digest(log, start, stop, blob, key, encoding, "at", length, row, schema, checksum, appended_low,
                          appended_high, event_low, event_high, event_reach, size_end), data
    from given
), state as materialized (
    select %s::bigint as length, %s::boolean as sealed, %s::bigint as fence, %s::bigint as low_water, %s::bigint as size,
           %s::bigint as appended_at, %s::bigint as event_high, %s::bigint as id, %s::bigint as stream
), log as (
    update logs as g
    set length = x.length, sealed = x.sealed, fence = x.fence, low_water = x.low_water, size = x.size,
        appended_at = x.appended_at, event_high = x.event_high,
        digest = logs_digest(x.id, x.stream, x.length, x.sealed, x.fence, x.low_water, x.size, x.appended_at, x.event_high)
    from state x where g.id = x.id and g.stream = x.stream
)
insert into writers (log, writer, next, fence, recent, seen_at, digest)
select log, writer, next, fence, recent, seen_at, writers_digest(log, writer, next, fence, recent, seen_at)
from (values (%s::bigint, %s::text, %s::bigint, %s::bigint, %s::bigint[], %s::bigint))
     as v (log, writer, next, fence, recent, seen_at)
on conflict (log, writer) do update
set next = excluded.next, fence = excluded.fence, recent = excluded.recent, seen_at = excluded.seen_at,
    digest = excluded.digest;

-- The stream of a name, read under the lock of the name.
-- name: lock_stream_by_name
select pg_advisory_xact_lock(lock_key('stream ' || id)) from streams where scope = %s and name = %s;

-- A recorded request or state is read with a row lock, which writes to the log: so the answer waits for synchronous
-- replicas as a change does. A primary that failed while it waited for them may be the only one that has the record.
-- name: request_for_update
select id, operation, result, "at", sound(requests) from requests where id = %s for update;

-- name: state_for_update
select kind, key, lookup, value, sound(states) from states where kind = %s and key = %s for update;

-- name: put_scope
insert into scopes (name, tags, created_at, digest)
select name, tags, created_at, scopes_digest(name, tags, created_at)
from (values (%s::text, %s::text, %s::bigint)) as v (name, tags, created_at)
on conflict (name) do update
set tags = excluded.tags, digest = scopes_digest(scopes.name, excluded.tags, scopes.created_at);

-- name: drop_scope
delete from scopes where name = %s;

-- name: insert_stream
insert into streams (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, segments,
                     spans, digest)
select id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, 0, 0,
       streams_digest(id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, 0, 0)
from (values (%s::bigint, %s::text, %s::text, %s::integer, %s::text, %s::bigint, %s::boolean, %s::integer, %s::bigint,
              %s::bigint))
     as v (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number);

-- name: update_stream
update streams as s
set scope = v.scope, name = v.name, schema_version = v.schema_version, tags = v.tags, sealed = v.sealed,
    version = v.version, epoch = v.epoch, next_number = v.next_number,
    digest = streams_digest(s.id, v.scope, v.name, v.schema_version, v.tags, s.created_at, v.sealed, v.version, v.epoch,
                            v.next_number, s.segments, s.spans)
from (values (%s::text, %s::text, %s::integer, %s::text, %s::boolean, %s::integer, %s::bigint, %s::bigint, %s::bigint))
     as v (scope, name, schema_version, tags, sealed, version, epoch, next_number, id)
where s.id = v.id;

-- The numbers of segments and spans of a stream, by which reads detect lost rows.
-- name: count_parts
update streams as s
set segments = p.segments, spans = p.spans,
    digest = streams_digest(s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch,
                            s.next_number, p.segments, p.spans)
from (
    select of.id, (select count(*) from segments where stream = of.id) as segments,
           (select count(*) from spans where stream = of.id) as spans
    from (values (%s::bigint)) as of (id) offset 0
) p
where s.id = p.id;

-- name: put_schema
insert into schemas (stream, version, columns, key_column, time_column, raw, digest)
select stream, version, columns, key_column, time_column, raw,
       schemas_digest(stream, version, columns, key_column, time_column, raw)
from (values (%s::bigint, %s::integer, %s::bytea, %s::text, %s::text, %s::boolean))
     as v (stream, version, columns, key_column, time_column, raw)
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
insert into segments (stream, segment, low, high, retired, head, digest)
select stream, segment, low, high, retired, head, segments_digest(stream, segment, low, high, retired, head)
from (values (%s::bigint, %s::bigint, %s::text, %s::text, %s::bigint, %s::bigint))
     as v (stream, segment, low, high, retired, head)
on conflict (stream, segment) do update
set low = excluded.low, high = excluded.high, retired = excluded.retired, head = excluded.head, digest = excluded.digest;

-- name: put_span
insert into spans (stream, segment, "offset", log, start, stop, digest)
select stream, segment, "offset", log, start, stop, spans_digest(stream, segment, "offset", log, start, stop)
from (values (%s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint))
     as v (stream, segment, "offset", log, start, stop)
on conflict (stream, segment, "offset") do update
set log = excluded.log, start = excluded.start, stop = excluded.stop, digest = excluded.digest;

-- name: drop_spans
delete from spans where stream = %s and segment = %s;

-- name: new_log
insert into logs (id, stream, length, sealed, fence, low_water, size, appended_at, event_high, digest)
select id, stream, 0, false, 0, 0, 0, appended_at, null, logs_digest(id, stream, 0, false, 0, 0, 0, appended_at, null)
from (select nextval('logs_id_seq') as id, %s::bigint as stream, %s::bigint as appended_at offset 0) as v
returning id;

-- name: update_log
update logs as g
set length = v.length, sealed = v.sealed, fence = v.fence, low_water = v.low_water, size = v.size,
    appended_at = v.appended_at, event_high = v.event_high,
    digest = logs_digest(v.id, v.stream, v.length, v.sealed, v.fence, v.low_water, v.size, v.appended_at, v.event_high)
from (values (%s::bigint, %s::boolean, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint))
     as v (length, sealed, fence, low_water, size, appended_at, event_high, id, stream)
where g.id = v.id and g.stream = v.stream;

-- Ids for logs that a transaction will create: as many as a stream has open segments.
-- name: reserve_logs
select nextval(pg_get_serial_sequence('logs', 'id')) from segments where stream = %s and retired is null;

-- name: put_log
insert into logs (id, stream, length, sealed, fence, low_water, size, appended_at, event_high, digest)
select id, stream, 0, false, 0, 0, 0, appended_at, null, logs_digest(id, stream, 0, false, 0, 0, 0, appended_at, null)
from (values (%s::bigint, %s::bigint, %s::bigint)) as v (id, stream, appended_at);

-- name: drop_log
delete from logs where id = %s;

-- name: drop_log_writers
delete from writers where log = %s;

-- name: insert_extent
insert into extents (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low, appended_high,
                     event_low, event_high, event_reach, size_end, data, digest)
select log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low, appended_high, event_low,
       event_high, event_reach, size_end, data,
       extents_digest(log, start, stop, blob, key, encoding, "at", length, row, schema, checksum, appended_low,
                      appended_high, event_low, event_high, event_reach, size_end)
from (values (%s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::text, %s::bigint, %s::bigint, %s::bigint, %s::integer,
              %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bytea, %s::text))
     as v (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low, appended_high, event_low,
           event_high, event_reach, size_end, data, key);

-- name: extent_times_before
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, sound(e, b.key)
from extents e left join blobs b on b.id = e.blob
where e.log = %s and e.start < %s order by e.start desc limit 1;

-- name: drop_extents
delete from extents where log = %s and start >= %s and stop <= %s;

-- name: put_progress
insert into writers (log, writer, next, fence, recent, seen_at, digest)
select log, writer, next, fence, recent, seen_at, writers_digest(log, writer, next, fence, recent, seen_at)
from (values (%s::bigint, %s::text, %s::bigint, %s::bigint, %s::bigint[], %s::bigint))
     as v (log, writer, next, fence, recent, seen_at)
on conflict (log, writer) do update
set next = excluded.next, fence = excluded.fence, recent = excluded.recent, seen_at = excluded.seen_at,
    digest = excluded.digest;

-- name: put_producer
insert into producers (stream, producer, epoch, last, answers, seen_at, digest)
select stream, producer, epoch, last, answers, seen_at,
       producers_digest(stream, producer, epoch, last, answers, seen_at)
from (values (%s::bigint, %s::text, %s::bigint, %s::bigint, %s::bigint[], %s::bigint))
     as v (stream, producer, epoch, last, answers, seen_at)
on conflict (stream, producer) do update
set epoch = excluded.epoch, last = excluded.last, answers = excluded.answers, seen_at = excluded.seen_at,
    digest = excluded.digest;

-- Read under its lock, behind the commits that carry its numbers.
-- name: producer_for_update
select stream, producer, epoch, last, answers, seen_at, sound(producers)
from producers where stream = %s and producer = %s for update;

-- name: drop_producer
delete from producers where stream = %s and producer = %s;

-- name: drop_stream_producers
delete from producers where stream = %s;

-- name: copy_fences
insert into writers (log, writer, next, fence, recent, seen_at, digest)
select %(successor)s, writer, 0, fence, '{}', seen_at, writers_digest(%(successor)s, writer, 0, fence, '{}', seen_at)
from writers where log = %(log)s and fence > 0
on conflict (log, writer) do update
set fence = greatest(writers.fence, excluded.fence),
    digest = writers_digest(writers.log, writers.writer, writers.next, greatest(writers.fence, excluded.fence),
                            writers.recent, writers.seen_at);

-- name: drop_progress_before
with old as (select log, writer from writers where seen_at < %s limit %s for update)
delete from writers r using old where r.log = old.log and r.writer = old.writer;

-- A blob that is listed already, by an earlier unit or commit that used it, keeps its row.
-- name: insert_blob
insert into blobs as b (id, key, size, encoding, begun_at, digest)
select id, key, size, encoding, begun_at, blobs_digest(key, id, size, encoding, begun_at, null)
from (select nextval('blobs_id_seq') as id, %s::text as key, %s::bigint as size, %s::text as encoding,
             %s::bigint as begun_at offset 0) as v
on conflict (key) do update
set size = excluded.size, digest = blobs_digest(b.key, b.id, excluded.size, b.encoding, b.begun_at, b.dead_at)
returning id;

-- name: set_blob_dead
update blobs as b
set dead_at = v.dead_at, digest = blobs_digest(b.key, b.id, b.size, b.encoding, b.begun_at, v.dead_at)
from (values (%s::bigint, %s::bigint)) as v (dead_at, id) where b.id = v.id;

-- name: drop_blob
delete from blobs where id = %s;

-- name: put_meta
insert into meta (name, value, digest)
select name, value, meta_digest(name, value) from (values (%s::text, %s::bigint)) as v (name, value)
on conflict (name) do update set value = excluded.value, digest = excluded.digest;

-- name: put_lease
insert into leases as l (id, kind, holder, begun_at, expires_at, digest)
select id, kind, holder, begun_at, expires_at, leases_digest(id, kind, holder, begun_at, expires_at)
from (values (%s::text, %s::text, %s::text, %s::bigint, %s::bigint)) as v (id, kind, holder, begun_at, expires_at)
on conflict (id) do update
set expires_at = excluded.expires_at,
    digest = leases_digest(l.id, l.kind, l.holder, l.begun_at, excluded.expires_at);

-- name: drop_lease
delete from leases where id = %s;

-- name: record_request
insert into requests (id, operation, result, at, digest)
select id, operation, result, at, requests_digest(id, operation, result, at)
from (values (%s::text, %s::text, %s::text, %s::bigint)) as v (id, operation, result, at);

-- name: drop_requests_before
delete from requests where id in (select id from requests where at < %s limit %s);

-- name: add_change
insert into changes (sequence, stream, at, kind, detail, digest)
select sequence, stream, at, kind, detail, changes_digest(sequence, stream, at, kind, detail)
from (select nextval('changes_sequence_seq') as sequence, %s::bigint as stream, %s::bigint as at, %s::text as kind,
             %s::text as detail offset 0) as v;

-- name: drop_changes_before
delete from changes where sequence in (select sequence from changes where at < %s order by sequence limit %s);

-- name: put_alias
insert into aliases (name, stream, digest)
select name, stream, aliases_digest(name, stream)
from (values (%s::text, %s::bigint)) as v (name, stream)
on conflict (name) do update set stream = excluded.stream, digest = excluded.digest;

-- name: drop_alias
delete from aliases where name = %s;

-- name: put_state
insert into states (kind, key, lookup, value, digest)
select kind, key, lookup, value, states_digest(kind, key, lookup, value)
from (values (%s::text, %s::text, %s::text, %s::text)) as v (kind, key, lookup, value)
on conflict (kind, key) do update
set lookup = excluded.lookup, value = excluded.value, digest = excluded.digest;

-- name: drop_state
delete from states where kind = %s and key = %s;
