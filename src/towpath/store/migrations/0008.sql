-- For people who watch: tries, workers, outcomes by hour and day, depths of topics, bulk acts.
-- oldest: 3

-- Code of before writes failures without these two.
alter table towpath.failure add column reserved_at bigint;
alter table towpath.failure add column worker text;

alter table towpath.session add column about text; -- host, pid, concurrency, version, as JSON
alter table towpath.session add column stop_at bigint; -- when it was asked to stop

-- Outcomes that are too old to be kept by the minute: hours, and later days. Code of before does not
-- count them, so its sums are too small beside new code.
create table towpath.period (
    step      bigint not null, -- minutes: 60 or 1440
    minute    bigint not null, -- its first
    completed bigint not null,
    failed    bigint not null,
    duration  bigint not null,
    retried   bigint not null,
    crashed   bigint not null,
    topic     text   not null,
    primary key (step, minute, topic)
) {without_rowid};

-- How many jobs of a topic were ready in a minute, and when the oldest of them was due. A topic with
-- none has a row only for the minute in which its last one went.
create table towpath.depth (
    minute bigint not null,
    ready  bigint not null,
    oldest bigint,
    topic  text   not null,
    primary key (minute, topic)
) {without_rowid};

-- One verb for many jobs, carried out by upkeep some at a time. The epoch grows with every round: a
-- process that carries it out presents the one that it read.
create table towpath.bulk (
    id         {uuid} not null primary key,
    epoch      bigint not null default 0,
    created_at bigint not null,
    begins_at  bigint not null,
    ended_at   bigint,
    up_to      bigint not null, -- the number of the newest job that it may touch
    next       bigint not null, -- the number at which the next round begins
    looked     bigint not null default 0,
    done       bigint not null default 0,
    refused    bigint not null default 0,
    counted    bigint not null, -- how many it would cover when it was made, as far as was counted
    exact      boolean not null,
    verb       text   not null,
    state      text   not null, -- waiting, running, done or stopped
    by         text   not null, -- the caller
    choice     text   not null, -- which jobs, as JSON
    refusals   text   not null default '[]' -- the first of them, as JSON
) {without_rowid};
create index towpath_bulk_next on towpath.bulk (begins_at) where ended_at is null;

-- The channels that may have limits, so that upkeep need not read the streams of jobs to find them.
create index towpath_channel_limited on towpath.channel (id) where job is null and name is not null;

-- Webhooks: a receiver that falls silent keeps few slots, and prompt ones do not wait behind it.
-- `late` of a delivery job now says that its receiver was not prompt the last time.
alter table towpath.subscription_health add column at_once bigint not null default 1; -- deliveries together
alter table towpath.subscription_health add column prompt boolean not null default false; -- the last time
