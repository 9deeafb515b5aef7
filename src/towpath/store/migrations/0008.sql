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

-- How many jobs of a topic were ready in a minute, and when the oldest of them was due. The row of
-- the topic '' has the sum of all; a topic with none has no row beside it.
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
-- `late` of a delivery job now says that its receiver was not prompt lately.
alter table towpath.subscription_health add column at_once bigint not null default 1; -- deliveries together
alter table towpath.subscription_health add column prompt bigint not null default 0; -- 0: late

-- When a Held saga was to be tried, so that it is not tried earlier after its release.
alter table towpath.sagas add column due_at bigint;

-- Only the cleaner takes a lease back, and only the manager cancels a delivery job. The worker may write the
-- same columns for its own work, so a transition is for those that may write a column which belongs to it alone.
/* postgres */ create function towpath.refuse_to_others() returns trigger language plpgsql as $$
begin
    if not has_column_privilege(tg_relid, tg_argv[0], 'update') then
        raise exception 'permission denied: only the % makes a % delivery job %', tg_argv[1], old.status, new.status
              using errcode = 'insufficient_privilege';
    end if;
    return new;
end $$;
/* postgres */ create trigger job_returns before update on towpath.webhook_delivery_jobs for each row
when (old.status = 'Leased' and new.status = 'Pending')
execute function towpath.refuse_to_others('lease_losses', 'cleaner');
/* postgres */ create trigger job_is_cancelled before update on towpath.webhook_delivery_jobs for each row
when (old.status = 'Pending' and new.status = 'Cancelled')
execute function towpath.refuse_to_others('cancel_requested', 'manager');

-- An event that is sent and the note of a requeue never change; a dead letter is that of a dead saga.
/* postgres */ create trigger event_moves before update on towpath.webhook_events for each row
execute function towpath.refuse_transition();
/* sqlite */ create trigger towpath.event_moves before update on towpath.webhook_events for each row
begin select raise(abort, 'an event that is sent never changes'); end;
/* postgres */ create trigger requeue_moves before update on towpath.dead_letter_requeues for each row
execute function towpath.refuse_beginning();
/* sqlite */ create trigger towpath.requeue_moves before update on towpath.dead_letter_requeues for each row
begin select raise(abort, 'the note of a requeue never changes'); end;
/* postgres */ create function towpath.refuse_letter_of_living_saga() returns trigger language plpgsql as $$
begin
    if not exists (select from towpath.sagas s where s.id = new.saga_id and s.status = 'DeadLettered') then
        raise exception 'saga % is not dead', new.saga_id using errcode = 'check_violation';
    end if;
    return new;
end $$;
/* postgres */ create trigger letter_of_saga before insert on towpath.dead_letters for each row
execute function towpath.refuse_letter_of_living_saga();
/* sqlite */ create trigger towpath.letter_of_saga before insert on towpath.dead_letters for each row
when not exists (select 1 from towpath.sagas s where s.id = new.saga_id and s.status = 'DeadLettered')
begin select raise(abort, 'a dead letter is that of a dead saga'); end;
