-- Every table has a primary key: logical replication refuses to delete from one that has none.
-- oldest: 1

-- An identity, because no value that a batch of outcomes writes is its own: no row is shared.
/* postgres */ alter table towpath.tally add column id {identity};

-- SQLite cannot add a primary key to a table.
/* sqlite */ create table towpath.tally_of_before as select * from towpath.tally;
/* sqlite */ drop table towpath.tally;
/* sqlite */ create table towpath.tally (
    at        bigint  not null,
    completed integer not null,
    failed    integer not null,
    duration  bigint  not null,
    topic     text    not null,
    id        {identity}
);
/* sqlite */ insert into towpath.tally (at, completed, failed, duration, topic)
select at, completed, failed, duration, topic from towpath.tally_of_before;
/* sqlite */ drop table towpath.tally_of_before;
