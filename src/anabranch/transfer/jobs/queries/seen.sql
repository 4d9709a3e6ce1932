-- Digests of rows, in a private database on disk that is gone with its connection. `rank` numbers all rows that are
-- looked at, in the order in which they are preferred.

-- name: make_seen
create table seen (low integer not null, high integer not null, rank integer not null);

-- name: make_repeats
create table repeats (rank integer primary key);

-- name: add
insert into seen (low, high, rank) values (?, ?, ?);

-- The database sorts with bounded memory, in files of its own.
-- name: settle
insert into repeats (rank)
select rank from (select rank, row_number() over (partition by low, high order by rank) as nth from seen)
where nth > 1 order by rank;

-- name: forget
drop table seen;

-- name: between
select rank from repeats where rank >= ? and rank < ?;

-- name: count
select count(*) from repeats where rank >= ?;
