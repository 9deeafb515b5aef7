-- Workers that reserve without a session, as those over HTTP do.
-- oldest: 1

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
