-- Histograms of run and waiting times; retries and crashes.
-- oldest: 3

-- Completed jobs by how long they ran, and waited for that. A bucket is its upper bound in
-- microseconds; 0: not known. Minute 0 is the sum of all past minutes; SQLite counts the present one
-- here too, and upkeep adds it to its minute afterwards. Code of before counts nothing here.
create table towpath.histogram (
    minute      bigint not null,
    topic       text   not null,
    run_bucket  bigint not null,
    wait_bucket bigint not null,
    completed   bigint not null,
    duration    bigint not null,
    waited      bigint not null,
    primary key (minute, topic, run_bucket, wait_bucket)
) {without_rowid};

-- The same of the jobs that a row counts; 0: it counts other outcomes.
alter table towpath.tally add column run_bucket bigint not null default 0;
alter table towpath.tally add column wait_bucket bigint not null default 0;
alter table towpath.tally add column waited bigint not null default 0;

alter table towpath.tally add column retried integer not null default 0;
alter table towpath.tally add column crashed integer not null default 0;
alter table towpath.minute add column retried bigint not null default 0;
alter table towpath.minute add column crashed bigint not null default 0;
