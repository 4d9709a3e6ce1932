-- Statements that only read.

-- name: scopes
select name, tags, created_at from scopes order by name;

-- name: scope
select name, tags, created_at from scopes where name = ?;

-- name: streams
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from streams s join schemas c on c.stream = s.id and c.version = s.schema_version
where (:scope is null or s.scope = :scope) and (s.scope, s.name) > (:after_scope, :after_name)
order by s.scope, s.name limit :limit;

-- name: stream_by_name
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from streams s join schemas c on c.stream = s.id and c.version = s.schema_version
where s.scope = ? and s.name = ?;

-- name: stream_by_alias
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from pieces p
join streams s on s.id = json_extract(p.value, '$.stream')
join schemas c on c.stream = s.id and c.version = s.schema_version
where p.kind = 'alias' and p.name = ?;

-- name: aliases
select p.name, s.id, s.scope, s.name
from pieces p join streams s on s.id = json_extract(p.value, '$.stream')
where p.kind = 'alias' and p.name > :after and p.name < :below
order by p.name limit :limit;

-- name: stream_by_id
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from streams s join schemas c on c.stream = s.id and c.version = s.schema_version
where s.id = ?;

-- name: streams_by_id
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from streams s join schemas c on c.stream = s.id and c.version = s.schema_version
where s.id in (select value from json_each(?));

-- name: segments_of_streams
select stream, segment, low, high, retired, head from segments where stream in (select value from json_each(?)) order by stream, segment;

-- name: spans_of_streams
select stream, segment, "offset", log, start, stop from spans where stream in (select value from json_each(?))
order by stream, segment, "offset";

-- name: fragmented
select stream, segment from spans group by stream, segment having count(*) >= ?
order by count(*) desc, stream, segment limit ?;

-- name: logs_of_streams
select distinct v.stream, l.id, l.stream, l.length, l.sealed, l.fence, l.low_water, l.size, l.appended_at, l.event_high
from spans v join logs l on l.id = v.log where v.stream in (select value from json_each(?)) order by v.stream, l.id;

-- name: schema
select columns, key_column, time_column, raw from schemas where stream = ? and version = ?;

-- name: segments
select segment, low, high, retired, head from segments where stream = ? order by segment;

-- name: spans
select segment, "offset", log, start, stop from spans where stream = ? order by segment, "offset";

-- name: spans_of_log
select stream, segment, "offset", log, start, stop from spans where log = ? order by start, stream, segment;

-- name: logs_of_stream
select l.id, l.stream, l.length, l.sealed, l.fence, l.low_water, l.size, l.appended_at, l.event_high
from logs l where l.id in (select log from spans where stream = ?);

-- name: log
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high from logs where id = ?;

-- name: logs
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high
from logs where id in (select value from json_each(?));

-- name: logs_after
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high
from logs where id > ? order by id limit ?;

-- The first extent that can intersect is the last one that begins at or before the start.
-- name: extents
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.size_end, e.data
from extents e left join blobs b on b.id = e.blob
where e.log = :log and e.stop > :start and e.start < :stop
  and e.start >= coalesce((select max(start) from extents where log = :log and start <= :start), 0)
order by e.start limit :limit;

-- Span by span and extent by extent in the order of both keys, so that nothing is sorted, and nothing looked at behind the limit.
-- name: extents_of_segment
select s."offset", e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.size_end, e.data
from spans s
cross join extents e
left join blobs b on b.id = e.blob
where s.stream = :stream and s.segment = :segment and s."offset" < :stop
  and s."offset" >= coalesce((select max("offset") from spans where stream = :stream and segment = :segment and "offset" <= :start), 0)
  and e.log = s.log and e.stop > s.start + max(0, :start - s."offset")
  and e.start < coalesce(min(s.stop, s.start + :stop - s."offset"), s.start + :stop - s."offset")
  and e.start >= coalesce((select max(start) from extents where log = s.log and start <= s.start + max(0, :start - s."offset")), 0)
order by s."offset", e.start limit :limit;

-- name: extent_before
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.size_end, e.data
from extents e left join blobs b on b.id = e.blob
where e.log = ? and e.start < ? order by e.start desc limit 1;

-- name: extents_of_blob
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.size_end, e.data
from extents e join blobs b on b.id = e.blob
where e.blob = ? order by e.log, e.start;

-- The extent at a position with the times that a search by halving needs.
-- name: times_at
select start, stop, appended_high, event_reach from extents where log = ? and start <= ? order by start desc limit 1;

-- name: first_extent_with_event
select start from extents where log = ? and start >= ? and event_high >= ? order by start limit 1;

-- name: progress
select next, fence, recent from writers where log = ? and writer = ?;

-- name: progress_in
select w.log, w.next, w.fence, w.recent from json_each(?2) l join writers w on w.log = l.value and w.writer = ?1;

-- name: log_and_progress
select l.id, l.stream, l.length, l.sealed, l.fence, l.low_water, l.size, l.appended_at, l.event_high,
       w.next, w.fence, w.recent
from logs l left join writers w on w.log = l.id and w.writer = ? where l.id = ?;

-- name: writers_of_log
select writer, next, fence, recent from writers where log = ? and writer > ? order by writer limit ?;

-- name: blobs_after
select id, key, size, encoding, begun_at, dead_at from blobs where id > ? order by id limit ?;

-- name: blob_keys
select key from blobs where key in (select value from json_each(?));

-- name: oldest_blob
select begun_at from blobs where id in (select value from json_each(?)) order by begun_at limit 1;

-- name: blob_in_use
select exists (select 1 from extents where blob = ?);

-- name: meta
select value from meta where name = ?;

-- name: leases
select id, kind, holder, begun_at, expires_at from leases order by begun_at;

-- name: request
select operation, result from requests where id = ?;

-- name: changes
select sequence, stream, at, kind, detail from changes where sequence > ? order by sequence limit ?;

-- name: pieces
select kind, name, value from pieces where kind = ? order by name limit ?;

-- name: piece
select kind, name, value from pieces where kind = ? and name = ?;
