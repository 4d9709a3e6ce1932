-- Positions of reader groups in an application's own database. Plain SQL, as every database knows it.

-- name: create
create table if not exists anabranch_positions (
    reader_group varchar(300) not null,
    segment varchar(40) not null,
    next_offset bigint not null,
    primary key (reader_group, segment)
);

-- name: load
select next_offset from anabranch_positions where reader_group = ? and segment = ?;

-- name: insert
insert into anabranch_positions (reader_group, segment, next_offset) values (?, ?, ?);

-- name: move
update anabranch_positions set next_offset = ? where reader_group = ? and segment = ? and next_offset = ?;
