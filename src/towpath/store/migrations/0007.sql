-- Webhooks: who is called, what is to be delivered, and every attempt to.
-- oldest: 3

-- A consumer that is never expired: events that it has not acked are kept, however long it is silent.
-- Code of before lets such events go from a channel with `drop_acked`.
alter table towpath.consumer add column lasting boolean not null default false;

-- Who is called, and how. The orchestrator only reads it.
create table towpath.subscriptions (
    id            {identity},
    created_at    bigint  not null,
    updated_at    bigint  not null,
    deleted_at    bigint,
    since_channel bigint  not null, -- the channel when it was made, and its head:
    since         bigint  not null, -- the subscription gets what came later
    timeout       bigint  not null, -- microseconds of one attempt
    concurrency   bigint  not null,
    pace          bigint, -- microseconds from one start to the next
    burst         bigint  not null,
    paused        boolean not null,
    ordered       boolean not null,
    token         {uuid}  not null unique, -- of the call that made it, so that its repetition is known
    channel       text    not null, -- by name: the channel may be deleted and made again
    url           text    not null,
    types         text    not null, -- a JSON list
    filter_rule   text,
    waits         text, -- a JSON list of microseconds; null: the default
    final         text, -- a JSON list of statuses after which no attempt follows
    body          text    not null, -- envelope or payload
    sealed        text    not null, -- secrets and headers, under a key that is not in here
    owner         text,
    description   text    not null
);
create index towpath_subscription_channel on towpath.subscriptions (channel) where deleted_at is null;
create index towpath_subscription_owner on towpath.subscriptions (owner, id)
 where owner is not null and deleted_at is null;

-- What deliveries have taught about a subscription, and when it may start the next one. The
-- transaction that advances a subscription, or moves one of its sagas, holds this row.
create table towpath.subscription_health (
    subscription_id {number} not null primary key,
    wakes_at        bigint, -- something may start then; null: a new saga or the end of an attempt says so
    tat             bigint  not null, -- as of limits
    failures        bigint  not null, -- attempts since the last success,
    failing_since   bigint,
    dead            integer not null, -- and dead letters
    warned          integer not null, -- percent of the time until it is stopped
    window_at       bigint  not null, -- of the breaker: results since then, and how many failed
    results         integer not null,
    failed          integer not null,
    open_until      bigint,
    trips           integer not null,
    holds           boolean not null, -- some sagas may be Held
    stopped_at      bigint, -- by the orchestrator; `paused` is the user's word
    stopped_why     text,
    last_success_at bigint,
    last_failure_at bigint
);
create index towpath_health_wakes on towpath.subscription_health (wakes_at) where wakes_at is not null;
-- Its rows are few and change all the time.
/* postgres */ alter table towpath.subscription_health set (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- An event as it is sent: once for all its sagas, as long as one of them is kept.
create table towpath.webhook_events (
    id       {identity},
    channel  bigint not null, -- 0: a ping
    seq      bigint not null,
    at       bigint not null,
    event    {uuid} not null unique, -- the webhook-id
    type     text,
    encoding text   not null,
    payload  text   not null
);

create table towpath.sagas (
    id               {identity},
    event_id         bigint  not null,
    subscription_id  bigint  not null,
    attempt_count    integer not null,
    replay_no        integer not null, -- 0: routed; else requeued or sent again
    replay_of        bigint,
    created_at       bigint  not null,
    finished_at      bigint,
    next_attempt_at  bigint, -- of a Held one: when its hold ends
    current_job_id   bigint,
    held_at          bigint,
    cancel_requested boolean not null,
    status           text    not null,
    held_from        text,
    last_error       text,
    check (status in ('Pending', 'InProgress', 'PendingRetry', 'Held', 'Completed', 'DeadLettered', 'Cancelled')),
    check ((finished_at is null) = (status in ('Pending', 'InProgress', 'PendingRetry', 'Held'))),
    unique (event_id, subscription_id, replay_no)
);
-- One unfinished saga of an event and a subscription; the line of an ordered subscription.
create unique index towpath_saga_live on towpath.sagas (subscription_id, event_id) where finished_at is null;
create index towpath_saga_line on towpath.sagas (subscription_id, status, next_attempt_at, id);

create table towpath.webhook_delivery_jobs (
    id               {identity},
    saga_id          bigint  not null,
    subscription_id  bigint  not null,
    attempt_no       integer not null,
    lease_losses     integer not null,
    attempt_at       bigint  not null,
    lease_until      bigint, -- null unless Leased
    lease_token      bigint, -- number of the claim; stays after the report, so that its repetition is known
    finished_at      bigint,
    applied_at       bigint, -- when its saga has learned the outcome
    retry_after      bigint, -- microseconds, as the receiver asked
    duration         bigint,
    response_status  integer,
    late             boolean not null, -- not the first attempt
    cancel_requested boolean not null default false, -- its saga is to be cancelled: no attempt follows
    status           text    not null,
    worker_id        text,
    error_code       text,
    excerpt          text,
    location         text,
    check (status in ('Pending', 'Leased', 'Completed', 'Failed', 'Cancelled')),
    check ((finished_at is null) = (status in ('Pending', 'Leased'))),
    check ((lease_until is null) = (status <> 'Leased')),
    check (length(error_code) <= 100)
);
create index {named idx_job_saga} on towpath.webhook_delivery_jobs (saga_id);
-- Of the claim and of the cleaner. No partial index may test `status`: PostgreSQL would take it, and
-- read all that wait.
create index {named idx_job_status_lease} on towpath.webhook_delivery_jobs (status, lease_until, late, id);
create unique index {named uniq_job_saga_attempt} on towpath.webhook_delivery_jobs (saga_id, attempt_no);
create unique index towpath_job_active on towpath.webhook_delivery_jobs (subscription_id, saga_id)
 where finished_at is null;
create index towpath_job_reported on towpath.webhook_delivery_jobs (subscription_id, id)
 where finished_at is not null and applied_at is null;

-- A saga that failed for good, with all that its requeue needs when the event is gone. The snapshot has
-- no type that could refuse it: a saga that cannot end would stop its subscription.
create table towpath.dead_letters (
    id               {identity},
    saga_id          bigint not null,
    event_id         bigint not null,
    subscription_id  bigint not null,
    failed_at        bigint not null,
    channel          bigint not null,
    seq              bigint not null,
    at               bigint not null,
    event            {uuid} not null,
    final_error_code text,
    type             text,
    encoding         text   not null,
    payload_snapshot text   not null,
    check (length(final_error_code) <= 100)
);
create unique index {named idx_dead_saga} on towpath.dead_letters (saga_id);
create index {named idx_dead_event} on towpath.dead_letters (event_id);
create index towpath_dead_subscription on towpath.dead_letters (subscription_id, id);

create table towpath.dead_letter_requeues (
    saga_id        {number} not null primary key, -- the new one
    dead_letter_id bigint   not null,
    at             bigint   not null,
    actor          text     not null
);
create index towpath_requeue_letter on towpath.dead_letter_requeues (dead_letter_id, saga_id);

-- What may follow what, as in model/sagas.py; even the owner of the tables cannot do otherwise.
/* postgres */ create function towpath.refuse_transition() returns trigger language plpgsql as $$
begin
    raise exception 'no transition of % % leads there', tg_table_name, old.id using errcode = 'check_violation';
end $$;
/* postgres */ create function towpath.refuse_beginning() returns trigger language plpgsql as $$
begin
    raise exception 'no row of % begins so', tg_table_name using errcode = 'check_violation';
end $$;
/* postgres */ create function towpath.refuse_job_of_ended_saga() returns trigger language plpgsql as $$
begin
    if not exists (select from towpath.sagas s where s.id = new.saga_id and s.finished_at is null) then
        raise exception 'saga % has ended', new.saga_id using errcode = 'check_violation';
    end if;
    return new;
end $$;

/* postgres */ create trigger saga_begins before insert on towpath.sagas for each row
when (new.status <> 'Pending' or new.attempt_count <> 0 or new.current_job_id is not null)
execute function towpath.refuse_beginning();
/* sqlite */ create trigger towpath.saga_begins before insert on towpath.sagas for each row
when new.status <> 'Pending' or new.attempt_count <> 0 or new.current_job_id is not null
begin select raise(abort, 'no row of sagas begins so'); end;

/* postgres */ create trigger saga_moves before update on towpath.sagas for each row
when (
    (old.status, new.status) not in (
        ('Pending', 'InProgress'), ('PendingRetry', 'InProgress'), ('InProgress', 'InProgress'),
        ('PendingRetry', 'PendingRetry'),
        ('InProgress', 'Completed'), ('InProgress', 'PendingRetry'), ('InProgress', 'DeadLettered'),
        ('InProgress', 'Cancelled'), ('Pending', 'Held'), ('PendingRetry', 'Held'), ('Held', 'Pending'),
        ('Held', 'PendingRetry'), ('Held', 'DeadLettered'), ('Pending', 'Cancelled'),
        ('PendingRetry', 'Cancelled'), ('Held', 'Cancelled'))
    or (old.status = new.status and not (
        (old.current_job_id, old.last_error) is not distinct from (new.current_job_id, new.last_error)
        and (old.status = 'InProgress' and new.cancel_requested
             and old.next_attempt_at is not distinct from new.next_attempt_at
             or old.status = 'PendingRetry' and old.cancel_requested = new.cancel_requested
             and coalesce(new.next_attempt_at < old.next_attempt_at, false))))
    or (old.status = 'Held' and new.status like 'Pending%' and new.status is distinct from old.held_from)
    or new.attempt_count < old.attempt_count
    or new.attempt_count > old.attempt_count + case when old.status = 'InProgress' and new.status <> 'InProgress' then 1 else 0 end
    or (old.id, old.event_id, old.subscription_id, old.replay_no, old.replay_of, old.created_at)
       is distinct from (new.id, new.event_id, new.subscription_id, new.replay_no, new.replay_of, new.created_at))
execute function towpath.refuse_transition();
/* sqlite */ create trigger towpath.saga_moves before update on towpath.sagas for each row
when (old.status, new.status) not in (values
        ('Pending', 'InProgress'), ('PendingRetry', 'InProgress'), ('InProgress', 'InProgress'),
        ('PendingRetry', 'PendingRetry'),
        ('InProgress', 'Completed'), ('InProgress', 'PendingRetry'), ('InProgress', 'DeadLettered'),
        ('InProgress', 'Cancelled'), ('Pending', 'Held'), ('PendingRetry', 'Held'), ('Held', 'Pending'),
        ('Held', 'PendingRetry'), ('Held', 'DeadLettered'), ('Pending', 'Cancelled'),
        ('PendingRetry', 'Cancelled'), ('Held', 'Cancelled'))
    or (old.status = new.status and not (
        (old.current_job_id, old.last_error) is (new.current_job_id, new.last_error)
        and (old.status = 'InProgress' and new.cancel_requested
             and old.next_attempt_at is new.next_attempt_at
             or old.status = 'PendingRetry' and old.cancel_requested = new.cancel_requested
             and coalesce(new.next_attempt_at < old.next_attempt_at, false))))
    or (old.status = 'Held' and new.status like 'Pending%' and new.status is not old.held_from)
    or new.attempt_count < old.attempt_count
    or new.attempt_count > old.attempt_count + (old.status = 'InProgress' and new.status <> 'InProgress')
    or (old.id, old.event_id, old.subscription_id, old.replay_no, old.replay_of, old.created_at)
       is not (new.id, new.event_id, new.subscription_id, new.replay_no, new.replay_of, new.created_at)
begin select raise(abort, 'no transition of sagas leads there'); end;

/* postgres */ create trigger job_begins before insert on towpath.webhook_delivery_jobs for each row
when (new.status <> 'Pending' or new.applied_at is not null or new.lease_token is not null)
execute function towpath.refuse_beginning();
/* postgres */ create trigger job_of_saga before insert on towpath.webhook_delivery_jobs for each row
execute function towpath.refuse_job_of_ended_saga();
/* sqlite */ create trigger towpath.job_begins before insert on towpath.webhook_delivery_jobs for each row
when new.status <> 'Pending' or new.applied_at is not null or new.lease_token is not null
    or not exists (select 1 from towpath.sagas s where s.id = new.saga_id and s.finished_at is null)
begin select raise(abort, 'no row of webhook_delivery_jobs begins so'); end;

-- Of a job that has ended, only this may change: that its saga has learned it. The lease of one that
-- stays Leased never becomes longer and never changes hands.
/* postgres */ create trigger job_moves before update on towpath.webhook_delivery_jobs for each row
when (
    not (
        (old.status, new.status) in (
            ('Pending', 'Leased'), ('Leased', 'Completed'), ('Leased', 'Failed'), ('Leased', 'Pending'),
            ('Pending', 'Cancelled'))
        and new.applied_at is null
        or old.status = 'Leased' and new.status = 'Leased' and new.lease_until <= old.lease_until
        and (new.cancel_requested or not old.cancel_requested)
        and (old.lease_token, old.lease_losses, old.worker_id, old.retry_after, old.duration,
             old.response_status, old.excerpt, old.location, old.applied_at)
            is not distinct from
            (new.lease_token, new.lease_losses, new.worker_id, new.retry_after, new.duration,
             new.response_status, new.excerpt, new.location, new.applied_at)
        or old.finished_at is not null and old.applied_at is null and new.applied_at is not null
        and (old.status, old.lease_token, old.lease_losses, old.finished_at, old.retry_after, old.duration,
             old.response_status, old.worker_id, old.error_code, old.excerpt, old.location,
             old.cancel_requested)
            is not distinct from
            (new.status, new.lease_token, new.lease_losses, new.finished_at, new.retry_after, new.duration,
             new.response_status, new.worker_id, new.error_code, new.excerpt, new.location,
             new.cancel_requested))
    or (old.id, old.saga_id, old.subscription_id, old.attempt_no, old.late, old.attempt_at)
       is distinct from (new.id, new.saga_id, new.subscription_id, new.attempt_no, new.late, new.attempt_at))
execute function towpath.refuse_transition();
/* sqlite */ create trigger towpath.job_moves before update on towpath.webhook_delivery_jobs for each row
when not (
        (old.status, new.status) in (values
            ('Pending', 'Leased'), ('Leased', 'Completed'), ('Leased', 'Failed'), ('Leased', 'Pending'),
            ('Pending', 'Cancelled'))
        and new.applied_at is null
        or old.status = 'Leased' and new.status = 'Leased' and new.lease_until <= old.lease_until
        and (new.cancel_requested or not old.cancel_requested)
        and (old.lease_token, old.lease_losses, old.worker_id, old.retry_after, old.duration,
             old.response_status, old.excerpt, old.location, old.applied_at)
            is
            (new.lease_token, new.lease_losses, new.worker_id, new.retry_after, new.duration,
             new.response_status, new.excerpt, new.location, new.applied_at)
        or old.finished_at is not null and old.applied_at is null and new.applied_at is not null
        and (old.status, old.lease_token, old.lease_losses, old.finished_at, old.retry_after, old.duration,
             old.response_status, old.worker_id, old.error_code, old.excerpt, old.location,
             old.cancel_requested)
            is
            (new.status, new.lease_token, new.lease_losses, new.finished_at, new.retry_after, new.duration,
             new.response_status, new.worker_id, new.error_code, new.excerpt, new.location,
             new.cancel_requested))
    or (old.id, old.saga_id, old.subscription_id, old.attempt_no, old.late, old.attempt_at)
       is not (new.id, new.saga_id, new.subscription_id, new.attempt_no, new.late, new.attempt_at)
begin select raise(abort, 'no transition of webhook_delivery_jobs leads there'); end;

/* postgres */ create trigger letter_moves before update on towpath.dead_letters for each row
execute function towpath.refuse_transition();
/* sqlite */ create trigger towpath.letter_moves before update on towpath.dead_letters for each row
begin select raise(abort, 'a dead letter never changes'); end;

-- Deliver a dead letter again, by a new saga; the one thing that an operator may write. The health row
-- is held first, so one of several operators makes the saga. A prune that deletes the event holds its row.
/* postgres */ create function towpath.requeue_dead_letter(letter bigint, actor text, now bigint)
returns table (saga bigint, problem text)
language sql security definer set search_path = pg_catalog, pg_temp as $$
with letter as materialized (select * from towpath.dead_letters d where d.id = $1),
woken as (
    update towpath.subscription_health h set wakes_at = least(h.wakes_at, $3)
      from letter l join towpath.subscriptions u on u.id = l.subscription_id and u.deleted_at is null
     where h.subscription_id = l.subscription_id
    returning h.subscription_id),
kept as materialized (
    select e.id from towpath.webhook_events e
     where e.id = (select l.event_id from letter l join woken w on true) for key share),
made_again as (
    insert into towpath.webhook_events (id, event, channel, seq, at, type, encoding, payload)
    overriding system value
    select l.event_id, l.event, l.channel, l.seq, l.at, l.type, l.encoding, l.payload_snapshot
      from letter l join woken w on true where not exists (select from kept)
    on conflict do nothing),
made as (
    insert into towpath.sagas (event_id, subscription_id, status, attempt_count, next_attempt_at,
                               replay_no, replay_of, created_at, cancel_requested)
    select l.event_id, l.subscription_id, 'Pending', 0, $3,
           (select coalesce(max(s.replay_no), 0) + 1 from towpath.sagas s
             where s.event_id = l.event_id and s.subscription_id = l.subscription_id),
           l.saga_id, $3, false
      from letter l join woken w on true
    on conflict do nothing
    returning id),
noted as (
    insert into towpath.dead_letter_requeues (saga_id, dead_letter_id, at, actor)
    select id, $1, $3, $2 from made)
select (select id from made),
       case when not exists (select from letter) then 'missing'
            when not exists (select from woken) then 'deleted'
            when not exists (select from made) then 'live' end
$$;
/* postgres */ revoke all on function towpath.requeue_dead_letter(bigint, text, bigint) from public;

-- For people at a SQL prompt.
create view towpath.deliveries as
select j.id, j.saga_id, s.event_id, j.subscription_id, u.channel, u.url, e.event, e.type, s.status as saga,
       j.status, j.attempt_no, j.response_status, j.error_code, j.worker_id,
       {timestamp j.attempt_at} as attempt_at, {timestamp j.lease_until} as lease_until,
       {timestamp j.finished_at} as finished_at, {timestamp s.next_attempt_at} as next_attempt_at
  from towpath.webhook_delivery_jobs j
  join towpath.sagas s on s.id = j.saga_id
  left join towpath.webhook_events e on e.id = s.event_id
  left join towpath.subscriptions u on u.id = j.subscription_id;

-- The caller of the HTTP API that a consumer belongs to; null: only callers that may manage the channel use it.
alter table towpath.consumer add column owner text;
