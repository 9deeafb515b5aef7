-- A primary key for the tally; fires that are owed.
-- oldest: 1

-- Logical replication refuses to delete from a table without a primary key. An identity: each batch
-- of outcomes still inserts a row of its own.
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

-- Fires that were due when the rule of their schedule changed, and could not be stored then.
create table towpath.owed_fire (
    schedule text   not null,
    fire_at  bigint not null,
    topic    text   not null,
    job      text   not null, -- as the schedule said before
    primary key (schedule, fire_at)
) {without_rowid};
