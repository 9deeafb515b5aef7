-- A primary key for the tally; owed fires; remote workers; repeated changes of a job; limited topics.
-- oldest: 3

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
    epoch    bigint not null,
    topic    text   not null,
    job      text   not null, -- as the schedule said before
    primary key (schedule, fire_at)
) {without_rowid};

-- Whom a lease was given to; null where its session says so, or the worker has no name.
alter table towpath.lease add column worker text;

-- Rows are written seldom, and forgotten when a worker is silent for long.
create table towpath.remote_worker (
    worker     text   not null primary key,
    started_at bigint not null,
    heard_at   bigint not null,
    topics     text   not null
) {without_rowid};
create index towpath_remote_worker_age on towpath.remote_worker (heard_at);

-- An enqueue that changes a waiting job leaves its id here: repeated after a lost answer, it finds it.
alter table towpath.job add column rewritten_by text;

-- The other leases of a topic: each is here or in the index of those that end by themselves, so that
-- the jobs of one topic can be counted without reading the leases of all.
create index towpath_lease_topic on towpath.lease (topic, seq) where until is null;

-- Set by the first enqueue of a job with a limit: its topic is then reserved in a transaction. Code of
-- before would not set it.
alter table towpath.topic add column limited boolean not null default false;
update towpath.topic set limited = true
 where name in (select topic from towpath.job where limit_key is not null);
