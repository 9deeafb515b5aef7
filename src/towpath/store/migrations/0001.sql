-- Jobs, and the tables in which their tickets lie.
-- oldest: 1

create table towpath.topic (
    name         text   not null primary key,
    created_at   bigint not null,
    paused_until bigint not null default 0
) {without_rowid};

-- Written once; only a change of priority touches it again.
create table towpath.job (
    seq        {identity},
    created_at bigint not null,
    run_at     bigint not null,
    priority   bigint not null,
    ttr        bigint not null,
    id         {uuid} not null unique,
    topic      text   not null,
    key        text,
    limit_key  text,
    encoding   text   not null,
    options    text,
    payload    text   not null
);
create index towpath_job_key on towpath.job (topic, key) where key is not null;

-- The primary key is the order of reservation. A counter that never moved is null, which takes no
-- room, here and in every table that the ticket moves to.
create table towpath.ready (
    seq       bigint  not null,
    priority  bigint  not null,
    epoch     bigint  not null default 0,
    retries   integer,
    crashes   integer,
    timeouts  integer,
    releases  integer,
    buries    integer,
    kicks     integer,
    awaited   boolean,
    topic     text    not null,
    key       text,
    limit_key text,
    primary key (topic, priority, seq)
) {hot};
create index towpath_ready_limit on towpath.ready (limit_key, topic, priority, seq)
 where limit_key is not null;

create table towpath.delayed (
    seq       bigint  not null,
    run_at    bigint  not null,
    priority  bigint  not null,
    epoch     bigint  not null default 0,
    retries   integer,
    crashes   integer,
    timeouts  integer,
    releases  integer,
    buries    integer,
    kicks     integer,
    awaited   boolean,
    topic     text    not null,
    key       text,
    limit_key text,
    primary key (topic, run_at, seq)
) {hot};
create unique index towpath_delayed_seq on towpath.delayed (seq);

-- Never looked at by reserve: what waits here is moved when it may run.
create table towpath.blocked (
    seq       bigint  not null,
    priority  bigint  not null,
    epoch     bigint  not null default 0,
    waits     integer, -- for so many other jobs; null: only for its limit
    retries   integer,
    crashes   integer,
    timeouts  integer,
    releases  integer,
    buries    integer,
    kicks     integer,
    awaited   boolean,
    topic     text    not null,
    key       text,
    limit_key text,
    primary key (topic, seq)
) {hot};
create unique index towpath_blocked_seq on towpath.blocked (seq);
create index towpath_blocked_limit on towpath.blocked (limit_key, topic, priority, seq)
 where waits is null;

-- What a job waits for, in the order in which it takes their results.
create table towpath.dependency (
    child     bigint  not null,
    nth       integer not null,
    parent    bigint  not null,
    completed boolean not null,
    result    text,
    primary key (child, nth)
) {without_rowid};
create index towpath_dependency_parent on towpath.dependency (parent);

-- Jobs that have ended, until those that wait for them have been told.
create table towpath.ended (
    parent    bigint  not null primary key,
    completed boolean not null,
    result    text
) {without_rowid};

-- Jobs that choose their workers, while they want more of them.
create table towpath.offer (
    seq      {number} not null primary key,
    open_at  bigint  not null,
    priority bigint  not null,
    wanted   integer not null, -- so many distinct workers are to succeed
    topic    text    not null,
    named    text -- the names of those who may, as JSON
);
create index towpath_offer_topic on towpath.offer (topic, priority, seq);

-- What each worker made of such a job: a job of its own.
create table towpath.run (
    offer      bigint not null,
    worker     text   not null,
    job        bigint not null,
    started_at bigint not null,
    ended_at   bigint,
    state      text   not null,
    primary key (offer, worker)
) {without_rowid};
create index towpath_run_job on towpath.run (job);

-- What bounds the jobs of a key, as the newest of them says.
create table towpath.limits (
    key         text   not null primary key,
    concurrency bigint, -- so many run at once
    pace        bigint, -- microseconds from one start to the next
    burst       bigint not null, -- so many may start at once after a rest
    declared_by bigint not null, -- the number of the job that said so
    tat         bigint not null default 0, -- when the next start would be due, at an even pace
    free_at     bigint -- when the next of those that wait may start
) {without_rowid};
create index towpath_limits_free on towpath.limits (free_at) where free_at is not null;

create table towpath.lease (
    seq         {number} not null primary key,
    epoch       bigint  not null,
    priority    bigint  not null,
    reserved_at bigint  not null,
    token       bigint  not null,
    until       bigint,
    session     bigint,
    retries     integer,
    crashes     integer,
    timeouts    integer,
    releases    integer,
    buries      integer,
    kicks       integer,
    touches     integer not null default 0,
    touched_at  bigint,
    started     boolean not null default false,
    cancelled   boolean not null default false,
    awaited     boolean,
    topic       text    not null,
    key         text,
    limit_key   text
) {hot_by_number};
create index towpath_lease_limit on towpath.lease (limit_key) where limit_key is not null;
-- A lease that a session holds has no end of its own and no entry here.
create index towpath_lease_until on towpath.lease (topic, until) where until is not null;
-- Few are cancelled while they run, and their workers look often.
create index towpath_lease_cancelled on towpath.lease (session) where cancelled;

create table towpath.buried (
    no        {identity},
    seq       bigint  not null unique,
    buried_at bigint  not null,
    priority  bigint  not null,
    epoch     bigint  not null,
    retries   integer,
    crashes   integer,
    timeouts  integer,
    releases  integer,
    buries    integer,
    kicks     integer,
    awaited   boolean,
    topic     text    not null,
    key       text,
    limit_key text
);
create index towpath_buried_topic on towpath.buried (topic, no);

create table towpath.done (
    seq         {number} not null primary key,
    finished_at bigint  not null,
    prune_at    bigint  not null,
    duration    bigint,
    priority    bigint  not null,
    epoch       bigint  not null,
    retries     integer,
    crashes     integer,
    timeouts    integer,
    releases    integer,
    buries      integer,
    kicks       integer,
    cancelled   boolean not null,
    awaited     boolean,
    topic       text    not null,
    key         text,
    limit_key   text,
    result      text
);
create index towpath_done_prune on towpath.done {by_age} (prune_at);
create index towpath_done_cancelled on towpath.done (seq) where cancelled;

create table towpath.failure (
    seq       bigint not null,
    epoch     bigint not null,
    failed_at bigint not null,
    kind      text   not null,
    error     text   not null,
    traceback text,
    primary key (seq, epoch)
) {without_rowid};

-- A key outlives nothing but its own job, so a conflict never wedges a sweep.
create table towpath.unique_key (
    topic text not null,
    key   text not null,
    id    {uuid} not null,
    primary key (topic, key)
) {without_rowid};

-- One row per batch of outcomes; upkeep rolls them up into minutes, so no row is hot.
create table towpath.tally (
    at        bigint  not null,
    completed integer not null,
    failed    integer not null,
    duration  bigint  not null,
    topic     text    not null
);

create table towpath.minute (
    minute    bigint not null,
    completed bigint not null,
    failed    bigint not null,
    duration  bigint not null,
    topic     text   not null,
    primary key (minute, topic)
) {without_rowid};

create table towpath.session (
    id         bigint not null primary key,
    started_at bigint not null,
    beat_at    bigint not null,
    beats      bigint not null default 0,
    worker     text   not null,
    topics     text   not null
) {without_rowid};

-- The epoch grows with every change; who fires presents the one that was read.
create table towpath.schedule (
    name     text    not null primary key,
    epoch    bigint  not null default 0,
    next_at  bigint,
    last_at  bigint,
    every    bigint,
    paused   boolean not null default false,
    cron     text,
    tz       text,
    catch_up text    not null,
    topic    text    not null,
    error    text,
    job      text    not null
) {without_rowid};
create index towpath_schedule_next on towpath.schedule (next_at, name) where next_at is not null;
-- What a job says of itself while it runs: how far it is, lines, events.
create table towpath.note (
    seq   bigint not null,
    no    bigint not null,
    epoch bigint not null,
    at    bigint not null,
    share double precision,
    kind  text   not null,
    text  text,
    primary key (seq, kind, no)
) {without_rowid};

-- A job together with its ticket, wherever that lies. Seven tables: of more than eight in a query
-- PostgreSQL does not try every order, so what else belongs to a job is looked up beside them.
create view towpath.located as
select j.seq, j.id, j.topic,
       case when r.seq is not null then 'ready'
            when d.seq is not null then 'delayed'
            when l.seq is not null then 'reserved'
            when w.seq is not null then 'blocked'
            when b.seq is not null then 'buried'
            when f.cancelled then 'cancelled'
            when f.seq is not null then 'completed' end as state,
       j.priority, j.key, j.payload, j.encoding, j.ttr, j.options, j.created_at,
       coalesce(d.run_at, j.run_at) as run_at,
       coalesce(r.epoch, d.epoch, l.epoch, w.epoch, b.epoch, f.epoch) as epoch,
       coalesce(r.retries, d.retries, l.retries, w.retries, b.retries, f.retries, 0) as retries,
       coalesce(r.crashes, d.crashes, l.crashes, w.crashes, b.crashes, f.crashes, 0) as crashes,
       coalesce(r.timeouts, d.timeouts, l.timeouts, w.timeouts, b.timeouts, f.timeouts, 0) as timeouts,
       coalesce(r.releases, d.releases, l.releases, w.releases, b.releases, f.releases, 0) as releases,
       coalesce(r.buries, d.buries, l.buries, w.buries, b.buries, f.buries, 0) as buries,
       coalesce(r.kicks, d.kicks, l.kicks, w.kicks, b.kicks, f.kicks, 0) as kicks,
       l.reserved_at, l.until, coalesce(l.cancelled, false) as cancel_requested,
       coalesce(f.finished_at, b.buried_at) as finished_at, f.duration, f.result,
       (select e.error from towpath.failure e
         where e.seq = j.seq order by e.epoch desc limit 1) as last_error,
       l.session,
       (select p.share from towpath.note p where p.seq = j.seq and p.kind = 'progress' and p.no = 0
           and p.epoch = coalesce(r.epoch, d.epoch, l.epoch, w.epoch, b.epoch, f.epoch)) as progress,
       (select p.text from towpath.note p where p.seq = j.seq and p.kind = 'progress' and p.no = 0
           and p.epoch = coalesce(r.epoch, d.epoch, l.epoch, w.epoch, b.epoch, f.epoch))
         as progress_message,
       coalesce(r.awaited, d.awaited, l.awaited, w.awaited, b.awaited, f.awaited, false) as awaited
  from towpath.job j
  left join towpath.ready r on r.topic = j.topic and r.priority = j.priority and r.seq = j.seq
  left join towpath.delayed d on d.seq = j.seq
  left join towpath.lease l on l.seq = j.seq
  left join towpath.blocked w on w.seq = j.seq
  left join towpath.buried b on b.seq = j.seq
  left join towpath.done f on f.seq = j.seq;

-- For people.
create view towpath.jobs as
select id, topic,
       case state when 'ready' then 'pending' when 'delayed' then 'pending'
                  when 'blocked' then 'pending' when 'reserved' then 'processing' when 'buried' then 'failed'
                  else state end as status,
       state, priority, key, payload, retries, progress, last_error, result,
       {timestamp created_at} as created_at, {timestamp run_at} as run_at,
       {timestamp reserved_at} as reserved_at, {timestamp finished_at} as finished_at,
       duration / 1e3 as duration_ms, epoch, crashes, timeouts, releases, buries, kicks, seq
  from towpath.located;
