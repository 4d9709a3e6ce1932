-- Statements of a session, before and around transactions.

-- Only durable commits are acknowledged, whatever the server's default; a stricter default (remote_apply) stays.
-- A plan made while a table was small is kept when it is large, so plans without an index are avoided from the start;
-- and with indexes everywhere no plan depends on its parameters, so none is made twice: planning costs more than running.
-- name: begin_session
select set_config('search_path', quote_ident(%(schema)s), false),
       set_config('lock_timeout', %(lock_ms)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s, false),
       set_config('statement_timeout', '0', false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('default_transaction_read_only', 'off', false),
       set_config('enable_seqscan', 'off', false),
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('jit', 'off', false),
       set_config('synchronous_commit',
                  case when current_setting('synchronous_commit') in ('off', 'local') then 'on'
                       else current_setting('synchronous_commit') end, false);

-- name: schema_exists
select exists (select 1 from pg_namespace where nspname = %s);

-- name: tables
select relname from pg_class where relnamespace = current_schema()::regnamespace and relkind = 'r';

-- name: format
select value from meta where name = 'format';

-- name: set_format
insert into meta (name, value, digest)
select name, value, meta_digest(name, value) from (values ('format', %s::bigint)) as v (name, value)
on conflict (name) do update set value = excluded.value, digest = excluded.digest;

-- Serializes processes that create or migrate the same catalog. Its schema may not exist yet, so the lock key is separate.
-- name: lock_migration
select pg_advisory_xact_lock(hashtextextended('anabranch migration ' || %s, 0));

-- name: begin_reading
begin isolation level repeatable read read only;

-- name: begin_writing
begin isolation level read committed read write;

-- name: commit
commit;

-- name: rollback
rollback;

-- The server's clock, in µs since the Unix epoch.
-- name: clock
select (extract(epoch from clock_timestamp()) * 1000000)::bigint;

-- Around a lock that may be refused and requested again.
-- name: set_savepoint
savepoint lock;

-- name: release_savepoint
release savepoint lock;

-- name: rollback_to_savepoint
rollback to savepoint lock;

-- name: append
select verdicts, numbers, times from append_2(
    %s::bigint, %s::text, %s::integer[], %s::text[],
    %s::bigint[], %s::bigint[], %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::integer[], %b::bytea[],
    %s::text[], %s::bigint[], %s::bigint[], %s::text[],
    %s::text[], %s::bigint[], %s::bigint[]);

-- A notification need not survive a crash.
-- name: set_async_commit
set synchronous_commit = off;

-- name: notify
select pg_notify(%s, '');

-- Increases with every transaction that changes anything in the database.
-- name: newest_transaction
select pg_snapshot_xmax(pg_current_snapshot())::text;
