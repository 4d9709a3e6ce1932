-- What a connection does before and around transactions.

-- Nothing is acknowledged that is not durable, whatever the server's default; a stricter default (remote_apply) stays.
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
insert into meta (name, value) values ('format', %s) on conflict (name) do update set value = excluded.value;

-- Serialises processes that make or migrate the same catalog; its schema may not exist yet, so the key is its own.
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

-- Around a lock that may be refused and asked for again.
-- name: set_savepoint
savepoint lock;

-- name: release_savepoint
release savepoint lock;

-- name: undo_to_savepoint
rollback to savepoint lock;

-- name: append
select verdicts, numbers, times from append_1(
    %s::bigint, %s::text, %s::integer[], %s::text[],
    %s::bigint[], %s::bigint[], %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::integer[], %b::bytea[],
    %s::text[], %s::bigint[], %s::bigint[], %s::text[]);

-- A notification need not survive a crash.
-- name: notifying
set synchronous_commit = off;

-- name: notify
select pg_notify(%s, '');

-- Rises with every transaction that changes anything in the database.
-- name: newest_transaction
select pg_snapshot_xmax(pg_current_snapshot())::text;
