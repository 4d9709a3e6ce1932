-- Statements that only read.

-- name: scopes
select name, tags, created_at, sound(scopes)
from scopes order by name;

-- name: scope
select name, tags, created_at, sound(scopes)
from scopes where name = %s;

-- name: streams
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       s.segments, s.spans, sound(s), c.stream, c.version, c.columns, c.key_column, c.time_column, c.raw, sound(c)
from streams s left join schemas c on c.stream = s.id and c.version = s.schema_version
where s.scope >= coalesce(%(scope)s::text, '') and s.scope <= coalesce(%(scope)s, U&'\+10FFFF')
  and (s.scope, s.name) > (%(after_scope)s, %(after_name)s)
order by s.scope, s.name limit %(limit)s;

-- name: stream_by_name
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       s.segments, s.spans, sound(s), c.stream, c.version, c.columns, c.key_column, c.time_column, c.raw, sound(c)
from streams s left join schemas c on c.stream = s.id and c.version = s.schema_version
where s.scope = %s and s.name = %s;

-- The alias first, then its stream.
-- name: stream_by_alias
select a.name, a.stream, sound(a), s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version,
       s.epoch, s.next_number, s.segments, s.spans, sound(s), c.stream, c.version, c.columns, c.key_column, c.time_column,
       c.raw, sound(c)
from aliases a
left join streams s on s.id = a.stream
left join schemas c on c.stream = s.id and c.version = s.schema_version
where a.name = %s;

-- Damaged rows are returned too: reading one raises an error.
-- name: aliases
select a.name, a.stream, sound(a), s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version,
       s.epoch, s.next_number, s.segments, s.spans, sound(s)
from aliases a
left join streams s on s.id = a.stream
where a.name > %(after)s and a.name < %(below)s and (s.id is not null or not sound(a))
order by a.name limit %(limit)s;

-- name: aliases_of
select name, stream, sound(aliases)
from aliases where stream = %s order by name;

-- name: stream_by_id
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       s.segments, s.spans, sound(s), c.stream, c.version, c.columns, c.key_column, c.time_column, c.raw, sound(c)
from streams s left join schemas c on c.stream = s.id and c.version = s.schema_version
where s.id = %s;

-- name: streams_by_id
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       s.segments, s.spans, sound(s), c.stream, c.version, c.columns, c.key_column, c.time_column, c.raw, sound(c)
from streams s left join schemas c on c.stream = s.id and c.version = s.schema_version
where s.id = any (%s);

-- name: segments_of_streams
select stream, segment, low, high, retired, head, sound(segments)
from segments where stream = any (%s) order by stream, segment;

-- name: spans_of_streams
select stream, segment, "offset", log, start, stop, sound(spans)
from spans where stream = any (%s)
order by stream, segment, "offset";

-- name: fragmented
select stream, segment from spans group by stream, segment having count(*) >= %s
order by count(*) desc, stream, segment limit %s;

-- name: logs_of_streams
select distinct v.stream, l.id, l.stream, l.length, l.sealed, l.fence, l.low_water, l.size, l.appended_at,
       l.event_high, sound(l)
from spans v join logs l on l.id = v.log where v.stream = any (%s) order by v.stream, l.id;

-- name: schema
select stream, version, columns, key_column, time_column, raw, sound(schemas)
from schemas where stream = %s and version = %s;

-- name: segments
select stream, segment, low, high, retired, head, sound(segments)
from segments where stream = %s order by segment;

-- name: spans
select stream, segment, "offset", log, start, stop, sound(spans)
from spans where stream = %s order by segment, "offset";

-- name: spans_of_log
select stream, segment, "offset", log, start, stop, sound(spans)
from spans where log = %s order by start, stream, segment;

-- name: logs_of_stream
select l.id, l.stream, l.length, l.sealed, l.fence, l.low_water, l.size, l.appended_at, l.event_high, sound(l)
from logs l where l.id in (select log from spans where stream = %s);

-- name: log
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high, sound(logs)
from logs where id = %s;

-- name: logs
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high, sound(logs)
from logs where id = any (%s);

-- name: stream_ids_after
select id from streams where id > %s order by id limit %s;

-- name: logs_after
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high, sound(logs)
from logs where id > %s order by id limit %s;

-- name: matches_log
select 1
from (values (%s::bigint, %s::boolean, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint))
     as v (length, sealed, fence, low_water, size, appended_at, event_high, id, stream)
join logs l on l.id = v.id
where l.digest = logs_digest(v.id, v.stream, v.length, v.sealed, v.fence, v.low_water, v.size, v.appended_at, v.event_high);

-- The first extent that can intersect is the last one that begins at or before the start.
-- name: extents
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data, sound(e, b.key)
from extents e left join blobs b on b.id = e.blob
where e.log = %(log)s and e.stop > %(start)s and e.start < %(stop)s
  and e.start >= coalesce((select max(start) from extents where log = %(log)s and start <= %(start)s), 0)
order by e.start limit %(limit)s;

-- Each span by itself, so that no more rows than the limit are read in any of them.
-- name: extents_of_segment
select s."offset", e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data,
       e.digest = extents_digest(e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema,
                                 e.checksum, e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach,
                                 e.size_end)
from spans s
cross join lateral (
    select * from extents x
    where x.log = s.log and x.stop > s.start + greatest(0, %(start)s - s."offset")
      and x.start < least(s.stop, s.start + %(stop)s - s."offset")
      and x.start >= coalesce(
          (select max(start) from extents where log = s.log and start <= s.start + greatest(0, %(start)s - s."offset")), 0)
    order by x.start limit %(limit)s
) e
left join blobs b on b.id = e.blob
where s.stream = %(stream)s and s.segment = %(segment)s and s."offset" < %(stop)s
  and s."offset" >= coalesce(
      (select max("offset") from spans where stream = %(stream)s and segment = %(segment)s and "offset" <= %(start)s), 0)
order by s."offset", e.start limit %(limit)s;

-- name: extent_before
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data, sound(e, b.key)
from extents e left join blobs b on b.id = e.blob
where e.log = %s and e.start < %s order by e.start desc limit 1;

-- name: extents_of_blob
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data, sound(e, b.key)
from extents e join blobs b on b.id = e.blob
where e.blob = %s order by e.log, e.start;

-- The extent at a position, with the times that a binary search needs.
-- name: times_at
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, sound(e, b.key)
from extents e left join blobs b on b.id = e.blob
where e.log = %s and e.start <= %s order by e.start desc limit 1;

-- Damaged rows are returned too: reading one raises an error.
-- name: first_extent_with_event
select e.start from extents e left join blobs b on b.id = e.blob
where e.log = %s and e.start >= %s
  and (e.event_high >= %s or not sound(e, b.key))
order by e.start limit 1;

-- name: progress
select log, writer, next, fence, recent, seen_at, sound(writers)
from writers where log = %s and writer = %s;

-- name: writers_of_log
select log, writer, next, fence, recent, seen_at, sound(writers)
from writers where log = %s and writer > %s order by writer limit %s;

-- name: producer
select stream, producer, epoch, last, answers, seen_at, sound(producers)
from producers where stream = %s and producer = %s;

-- name: producers_of_stream
select stream, producer, epoch, last, answers, seen_at, sound(producers)
from producers where stream = %s and producer > %s order by producer limit %s;

-- name: count_producers
select count(*) from producers where stream = %s;

-- name: blobs_after
select key, id, size, encoding, begun_at, dead_at, sound(blobs)
from blobs where id > %s order by id limit %s;

-- name: blob_keys
select key from blobs where key = any (%s);

-- name: blobs
select key, id, size, encoding, begun_at, dead_at, sound(blobs)
from blobs where id = any (%s) order by begun_at;

-- name: blob_in_use
select exists (select 1 from extents where blob = %s);

-- name: meta
select name, value, sound(meta)
from meta where name = %s;

-- name: leases
select id, kind, holder, begun_at, expires_at, sound(leases)
from leases order by begun_at;

-- name: request
select id, operation, result, "at", sound(requests)
from requests where id = %s;

-- name: changes
select sequence, stream, at, kind, detail, sound(changes)
from changes where sequence > %s order by sequence limit %s;

-- name: state
select kind, key, lookup, value, sound(states)
from states where kind = %s and key = %s;

-- name: states
select kind, key, lookup, value, sound(states)
from states where kind = %s order by key limit %s;

-- name: states_between
select kind, key, lookup, value, sound(states)
from states where kind = %s and key >= %s and key < %s order by key limit %s;

-- name: states_among
select kind, key, lookup, value, sound(states)
from states where kind = %s and key = any (%s) order by key;

-- name: states_found
select kind, key, lookup, value, sound(states)
from states where kind = %s and lookup = %s order by key limit %s;

-- name: states_found_between
select kind, key, lookup, value, sound(states)
from states where kind = %s and lookup >= %s and lookup < %s order by lookup, key limit %s;

-- Rows with broken references: the database itself checks only some of them.
-- name: broken_references
select 'extents', log, 'logs' from extents e where not exists (select 1 from logs g where g.id = e.log)
union all
select 'extents', log, 'blobs' from extents e
where blob is not null and not exists (select 1 from blobs b where b.id = e.blob)
union all
select 'writers', log, 'logs' from writers r where not exists (select 1 from logs g where g.id = r.log)
union all
select 'spans', log, 'logs' from spans s where not exists (select 1 from logs g where g.id = s.log)
limit 100;

-- name: invalid_indexes
select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relnamespace = current_schema()::regnamespace and not i.indisvalid;
