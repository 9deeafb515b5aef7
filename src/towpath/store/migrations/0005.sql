-- Event streams: channels, their events, and the readers whose places are kept.
-- oldest: 3

-- One row for each channel. A publish holds it; no index has a column that a publish changes.
create table towpath.channel (
    id         {identity}, -- in every cursor, never given twice
    head       bigint not null default 0, -- number of the newest event: dense, in the order of commits
    low        bigint not null default 0, -- events up to this one are gone; raised before they go
    bytes      bigint not null default 0, -- of the payloads that are kept
    created_at bigint not null,
    closed_at  bigint,
    job        bigint, -- whose stream it is
    epoch      bigint, -- of a job's stream: the lease that wrote last,
    said       bigint, -- and how many words of it are here
    source     bigint, -- the channel that it was forked from, at fork_at
    fork_at    bigint,
    name       text {by_bytes} unique, -- null once it is deleted: its events go later, some at a time
    media      text not null default 'application/json',
    order_key  text, -- Stream-Seq of the last append
    ended      text -- how it was closed
);
create index towpath_channel_job on towpath.channel (job) where job is not null;
create index towpath_channel_running on towpath.channel (job)
 where job is not null and closed_at is null;
create index towpath_channel_source on towpath.channel (source) where source is not null;
create index towpath_channel_deleted on towpath.channel (id) where name is null;

create table towpath.event (
    channel  bigint not null,
    seq      bigint not null,
    at       bigint not null,
    size     bigint not null, -- bytes of the body
    id       {uuid} not null,
    type     text,
    key      text,
    headers  text,
    encoding text   not null,
    body     text   not null,
    primary key (channel, seq)
) {without_rowid};
create unique index towpath_event_key on towpath.event (channel, key) where key is not null;

-- Published in a transaction that is not ours: it gets its number after the commit.
create table towpath.posted (
    no       {identity},
    at       bigint not null,
    size     bigint not null,
    name     text   not null, -- not by number: the channel may be made later
    id       {uuid} not null,
    type     text,
    key      text,
    headers  text,
    encoding text   not null,
    body     text   not null
);
create index towpath_posted_name on towpath.posted (name, no);

-- Durable Streams: what each producer has said last.
create table towpath.producer (
    channel bigint not null,
    epoch   bigint not null,
    said    bigint not null,
    name    text   not null,
    primary key (channel, name)
) {without_rowid};

-- Readers whose places are kept. A reader of an older generation is refused.
create table towpath.consumer (
    channel    bigint not null,
    acked      bigint not null,
    generation bigint not null,
    seen_at    bigint not null,
    name       text   not null,
    primary key (channel, name)
) {without_rowid};

-- Channels that end by themselves, or keep less than usual; most have no row here.
create table towpath.lifetime (
    channel    {number} not null primary key,
    ttl        bigint, -- renewed by reads and writes
    expires_at bigint,
    max_age    bigint,
    max_bytes  bigint,
    max_count  bigint,
    drop_acked boolean -- events go as soon as all consumers have acked them
);
create index towpath_lifetime_end on towpath.lifetime (expires_at) where expires_at is not null;

alter table towpath.api_key add column channels text not null default '[]';

-- One row once a backup was restored: numbers after that may have been given before.
create table towpath.era (
    id     {number} not null primary key,
    number bigint   not null
);

-- Whether the job has a stream. Code of before loses the mark; upkeep ends such a stream.
alter table towpath.ready add column streamed boolean;
alter table towpath.delayed add column streamed boolean;
alter table towpath.lease add column streamed boolean;
alter table towpath.blocked add column streamed boolean;
alter table towpath.buried add column streamed boolean;
alter table towpath.done add column streamed boolean;
