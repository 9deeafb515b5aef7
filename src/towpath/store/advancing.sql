-- Applies outcomes and starts what has room. Everything else is read after `hold`, by later statements:
-- these see all that other transactions had committed when it locked the rows.

-- Subscriptions that are due, and those with outcomes. `reported` jumps from one subscription to the
-- next, as one of them may have many outcomes.
-- name: hold [sqlite]
with recursive reported(subscription_id, n) as (
    select min(j.subscription_id), 1 from towpath.webhook_delivery_jobs j
     where j.finished_at is not null and j.applied_at is null and j.subscription_id > :after
    union all
    select (select min(j.subscription_id) from towpath.webhook_delivery_jobs j
             where j.finished_at is not null and j.applied_at is null
               and j.subscription_id > r.subscription_id), r.n + 1
      from reported r where r.subscription_id is not null and r.n < :most_reported)
select h.subscription_id, h.tat, h.failures, h.failing_since, h.dead, h.warned, h.window_at, h.results,
       h.failed, h.open_until, h.trips, h.holds, h.stopped_at, h.stopped_why, h.last_success_at,
       h.last_failure_at, h.at_once, h.prompt, coalesce(h.wakes_at <= :now, false) as due,
       (select count(subscription_id) from reported) as jumps,
       (select max(subscription_id) from reported) as upto, :now as now
  from towpath.subscription_health h
 where h.subscription_id in (
       select d.subscription_id from (
           select subscription_id from towpath.subscription_health
            where wakes_at <= :now order by wakes_at limit :most_due) d
       union select r.subscription_id from reported r where r.subscription_id is not null)
 order by h.subscription_id;

-- name: hold [postgres]
with recursive due as materialized (
    select h.subscription_id from towpath.subscription_health h
     where h.wakes_at <= {now} order by h.wakes_at limit cast(:most_due as bigint)
       for update skip locked),
reported(subscription_id, n) as (
    (select j.subscription_id, 1 from towpath.webhook_delivery_jobs j
      where j.finished_at is not null and j.applied_at is null and j.subscription_id > :after
      order by j.subscription_id limit 1)
    union all
    select t.subscription_id, r.n + 1 from reported r cross join lateral (
        select j.subscription_id from towpath.webhook_delivery_jobs j
         where j.finished_at is not null and j.applied_at is null
           and j.subscription_id > r.subscription_id
         order by j.subscription_id limit 1) t
     where r.n < cast(:most_reported as bigint))
select h.subscription_id, h.tat, h.failures, h.failing_since, h.dead, h.warned, h.window_at, h.results,
       h.failed, h.open_until, h.trips, h.holds, h.stopped_at, h.stopped_why, h.last_success_at,
       h.last_failure_at, h.at_once, h.prompt, coalesce(h.wakes_at <= {now}, false) as due,
       (select count(*) from reported) as jumps,
       (select max(subscription_id) from reported) as upto, {now} as now
  from towpath.subscription_health h
 where h.subscription_id = any(array(
       select subscription_id from due union select subscription_id from reported))
 order by h.subscription_id for update of h skip locked;

-- A statement of its own counts the jobs under way, after `hold`.
-- name: standing
select u.id, u.channel, u.deleted_at is not null as deleted, u.paused, u.ordered, u.concurrency, u.pace,
       u.burst, u.waits, u.final,
       (select count(*) from towpath.webhook_delivery_jobs j
         where j.subscription_id = u.id and j.finished_at is null) as running,
       (select count(case when j.status = 'Pending' then 1 end) from towpath.webhook_delivery_jobs j
         where j.subscription_id = u.id and j.finished_at is null) as pending
  from towpath.subscriptions u where u.id {in_items subscription bigint};

-- name: reported
select j.id, j.saga_id, j.subscription_id, j.status, j.finished_at, j.response_status, j.error_code,
       j.retry_after, j.duration, j.worker_id, s.attempt_count, s.cancel_requested,
       s.status = 'InProgress' and s.current_job_id = j.id as current
  from towpath.webhook_delivery_jobs j join towpath.sagas s on s.id = j.saga_id
 where j.subscription_id {in_items subscription bigint}
   and j.finished_at is not null and j.applied_at is null
 order by j.id;

-- The outcome of a job is applied only to the saga whose attempt it is, and only once. A dead letter is
-- there as soon as its saga is dead. Answers with the dead letters.
-- name: apply [sqlite]
update towpath.webhook_delivery_jobs set applied_at = :now
 where id = :job and finished_at is not null and applied_at is null;
update towpath.sagas
   set status = :status, attempt_count = attempt_count + :attempts, next_attempt_at = :next_attempt_at,
       current_job_id = case when :status = 'PendingRetry' then null else current_job_id end,
       finished_at = case when :status = 'PendingRetry' then null else :now end, last_error = :error
 where id = :saga and status = 'InProgress' and current_job_id = :job
returning id as saga, event_id, subscription_id, status;
insert into towpath.dead_letters (saga_id, event_id, subscription_id, failed_at, channel, seq, at, event,
                                  final_error_code, type, encoding, payload_snapshot)
select @saga, @event_id, @subscription_id, :now, e.channel, e.seq, e.at, e.event, :error, e.type,
       e.encoding, e.payload
  from towpath.webhook_events e where e.id = @event_id and @status = 'DeadLettered'
returning id, saga_id, subscription_id, event, type, final_error_code;

-- name: apply [postgres]
with item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           job bigint, saga bigint, status text, attempts integer, next_attempt_at bigint, error text)),
applied as (
    update towpath.webhook_delivery_jobs j set applied_at = {now}
     where j.id = any(array(select job from item)) and j.finished_at is not null and j.applied_at is null),
moved as (
    update towpath.sagas s
       set status = i.status, attempt_count = s.attempt_count + i.attempts,
           next_attempt_at = i.next_attempt_at,
           current_job_id = case when i.status = 'PendingRetry' then null else s.current_job_id end,
           finished_at = case when i.status = 'PendingRetry' then null else {now} end,
           last_error = i.error
      from item i
     where s.id = i.saga and s.status = 'InProgress' and s.current_job_id = i.job
    returning s.id, s.event_id, s.subscription_id, s.status, i.error)
insert into towpath.dead_letters (saga_id, event_id, subscription_id, failed_at, channel, seq, at, event,
                                  final_error_code, type, encoding, payload_snapshot)
select m.id, m.event_id, m.subscription_id, {now}, e.channel, e.seq, e.at, e.event, m.error, e.type,
       e.encoding, e.payload
  from moved m cross join lateral (
       select * from towpath.webhook_events e where e.id = m.event_id offset 0) e
 where m.status = 'DeadLettered'
returning id, saga_id, subscription_id, event, type, final_error_code;

-- name: hold_sagas [sqlite]
update towpath.sagas
   set held_from = status, status = 'Held', held_at = :now, next_attempt_at = :now + :hold,
       due_at = next_attempt_at
 where id in (select id from (select id from towpath.sagas
                               where subscription_id = :subscription and status = 'PendingRetry'
                               order by next_attempt_at, id limit :limit)
              union all
              select id from (select id from towpath.sagas
                               where subscription_id = :subscription and status = 'Pending'
                               order by next_attempt_at, id limit :limit))
returning subscription_id;

-- name: hold_sagas [postgres]
update towpath.sagas
   set held_from = status, status = 'Held', held_at = {now}, next_attempt_at = {now} + cast(:hold as bigint),
       due_at = next_attempt_at
 where id = any(array(
       select t.id from {items i(subscription bigint)} cross join lateral (
           (select s.id from towpath.sagas s
             where s.subscription_id = i.subscription and s.status = 'PendingRetry'
             order by s.next_attempt_at, s.id limit cast(:limit as bigint))
           union all
           (select s.id from towpath.sagas s
             where s.subscription_id = i.subscription and s.status = 'Pending'
             order by s.next_attempt_at, s.id limit cast(:limit as bigint))) t))
returning subscription_id;

-- A released saga is due since it was made, so that no later event overtakes it while others are still
-- held. A retry whose time is still to come keeps that time: the receiver may have asked for it.
-- name: release [sqlite]
update towpath.sagas
   set status = held_from, held_from = null, held_at = null, due_at = null,
       next_attempt_at = case when held_from = 'PendingRetry' and due_at > :now then due_at
                              else min(created_at, :now) end
 where id in (select id from towpath.sagas
               where subscription_id = :subscription and status = 'Held'
               order by next_attempt_at, id limit :limit)
returning subscription_id;

-- name: release [postgres]
update towpath.sagas
   set status = held_from, held_from = null, held_at = null, due_at = null,
       next_attempt_at = case when held_from = 'PendingRetry' and due_at > {now} then due_at
                              else least(created_at, {now}) end
 where id = any(array(
       select t.id from {items i(subscription bigint)} cross join lateral (
           select s.id from towpath.sagas s
            where s.subscription_id = i.subscription and s.status = 'Held'
            order by s.next_attempt_at, s.id limit cast(:limit as bigint)) t))
returning subscription_id;

-- name: expire [sqlite]
update towpath.sagas set status = 'DeadLettered', finished_at = :now, last_error = :error
 where id in (select id from towpath.sagas
               where subscription_id = :subscription and status = 'Held' and next_attempt_at <= :now
               order by next_attempt_at, id limit :limit)
returning id as saga, event_id;
insert into towpath.dead_letters (saga_id, event_id, subscription_id, failed_at, channel, seq, at, event,
                                  final_error_code, type, encoding, payload_snapshot)
select @saga, @event_id, :subscription, :now, e.channel, e.seq, e.at, e.event, :error, e.type, e.encoding,
       e.payload
  from towpath.webhook_events e where e.id = @event_id
returning id, saga_id, subscription_id, event, type, final_error_code;

-- name: expire [postgres]
with moved as (
    update towpath.sagas set status = 'DeadLettered', finished_at = {now}, last_error = :error
     where id = any(array(
           select t.id from {items i(subscription bigint)} cross join lateral (
               select s.id from towpath.sagas s
                where s.subscription_id = i.subscription and s.status = 'Held'
                  and s.next_attempt_at <= {now}
                order by s.next_attempt_at, s.id limit cast(:limit as bigint)) t))
    returning id, event_id, subscription_id)
insert into towpath.dead_letters (saga_id, event_id, subscription_id, failed_at, channel, seq, at, event,
                                  final_error_code, type, encoding, payload_snapshot)
select m.id, m.event_id, m.subscription_id, {now}, e.channel, e.seq, e.at, e.event, cast(:error as text),
       e.type, e.encoding, e.payload
  from moved m cross join lateral (
       select * from towpath.webhook_events e where e.id = m.event_id offset 0) e
returning id, saga_id, subscription_id, event, type, final_error_code;

-- An ordered subscription starts at most the first of its unfinished sagas. Any other one starts those
-- that are due, the longest due first. A Pending saga is always due, whatever the clock says.
-- name: start [sqlite]
select id as saga, attempt_count from (
    select id, attempt_count, next_attempt_at from (
        select id, attempt_count, next_attempt_at from towpath.sagas
         where subscription_id = :subscription and status = 'Pending' and not :ordered
         order by next_attempt_at, id limit :room)
    union all
    select id, attempt_count, next_attempt_at from (
        select id, attempt_count, next_attempt_at from towpath.sagas
         where subscription_id = :subscription and status = 'PendingRetry' and next_attempt_at <= :now
           and not :ordered
         order by next_attempt_at, id limit :room)
    union all
    select id, attempt_count, next_attempt_at from (
        select id, attempt_count, next_attempt_at, status from towpath.sagas
         where subscription_id = :subscription and finished_at is null and :ordered
         order by event_id limit 1)
     where status = 'Pending' or status = 'PendingRetry' and next_attempt_at <= :now)
 order by next_attempt_at, id limit :room;
insert into towpath.webhook_delivery_jobs (saga_id, subscription_id, attempt_no, lease_losses, attempt_at,
                                           late, status)
values (@saga, :subscription, @attempt_count + 1, 0, :now, :late, 'Pending')
returning id as job, saga_id as saga;
update towpath.sagas set status = 'InProgress', next_attempt_at = null, current_job_id = @job
 where id = @saga and status in ('Pending', 'PendingRetry')
returning subscription_id;

-- name: start [postgres]
with picked as materialized (
    select t.id, i.subscription, i.late, t.attempt_count, t.next_attempt_at
      from json_to_recordset(cast(:items as json)) as i(
           subscription bigint, ordered boolean, late boolean, room bigint)
     cross join lateral (
        select * from (
            (select s.id, s.attempt_count, s.next_attempt_at from towpath.sagas s
              where s.subscription_id = i.subscription and s.status = 'Pending' and not i.ordered
              order by s.next_attempt_at, s.id limit i.room)
            union all
            (select s.id, s.attempt_count, s.next_attempt_at from towpath.sagas s
              where s.subscription_id = i.subscription and s.status = 'PendingRetry'
                and s.next_attempt_at <= {now} and not i.ordered
              order by s.next_attempt_at, s.id limit i.room)
            union all
            select f.id, f.attempt_count, f.next_attempt_at from (
                select s.* from towpath.sagas s
                 where s.subscription_id = i.subscription and s.finished_at is null and i.ordered
                 order by s.event_id limit 1) f
             where f.status = 'Pending' or f.status = 'PendingRetry' and f.next_attempt_at <= {now}) b
         order by b.next_attempt_at, b.id limit i.room) t),
made as (
    insert into towpath.webhook_delivery_jobs (saga_id, subscription_id, attempt_no, lease_losses,
                                               attempt_at, late, status)
    select id, subscription, attempt_count + 1, 0, {now}, late, 'Pending' from picked
     order by next_attempt_at, id
    returning id, saga_id)
update towpath.sagas s set status = 'InProgress', next_attempt_at = null, current_job_id = m.id
  from made m where s.id = m.saga_id and s.status in ('Pending', 'PendingRetry')
returning s.subscription_id;

-- `next` says what a subscription waits for: the first saga that comes due, the first of an ordered line,
-- the first that was held for too long; or else for wakes_at.
-- name: note [sqlite]
update towpath.subscription_health
   set tat = :tat, failures = :failures, failing_since = :failing_since, dead = :dead, warned = :warned,
       window_at = :window_at, results = :results, failed = :failed, open_until = :open_until,
       trips = :trips, holds = :holds, stopped_at = :stopped_at, stopped_why = :stopped_why,
       last_success_at = :last_success_at, last_failure_at = :last_failure_at, at_once = :at_once,
       prompt = :prompt,
       wakes_at = case :next
           when 'due' then (
               select min(t.next_attempt_at) from (
                   select min(next_attempt_at) as next_attempt_at from towpath.sagas
                    where subscription_id = :subscription and status = 'Pending'
                   union all
                   select min(next_attempt_at) from towpath.sagas
                    where subscription_id = :subscription and status = 'PendingRetry') t)
           when 'first' then (
               select next_attempt_at from towpath.sagas
                where subscription_id = :subscription and finished_at is null order by event_id limit 1)
           when 'held' then (
               select min(next_attempt_at) from towpath.sagas
                where subscription_id = :subscription and status = 'Held')
           else :wakes_at end
 where subscription_id = :subscription;

-- name: note [postgres]
update towpath.subscription_health h
   set tat = i.tat, failures = i.failures, failing_since = i.failing_since, dead = i.dead,
       warned = i.warned, window_at = i.window_at, results = i.results, failed = i.failed,
       open_until = i.open_until, trips = i.trips, holds = i.holds, stopped_at = i.stopped_at,
       stopped_why = i.stopped_why, last_success_at = i.last_success_at,
       last_failure_at = i.last_failure_at, at_once = i.at_once, prompt = i.prompt,
       wakes_at = case i.next
           when 'due' then least(
               (select s.next_attempt_at from towpath.sagas s
                 where s.subscription_id = i.subscription and s.status = 'Pending'
                 order by s.next_attempt_at, s.id limit 1),
               (select s.next_attempt_at from towpath.sagas s
                 where s.subscription_id = i.subscription and s.status = 'PendingRetry'
                 order by s.next_attempt_at, s.id limit 1))
           when 'first' then (
               select s.next_attempt_at from towpath.sagas s
                where s.subscription_id = i.subscription and s.finished_at is null
                order by s.event_id limit 1)
           when 'held' then (
               select s.next_attempt_at from towpath.sagas s
                where s.subscription_id = i.subscription and s.status = 'Held'
                order by s.next_attempt_at, s.id limit 1)
           else i.wakes_at end
  from json_to_recordset(cast(:items as json)) as i(
       subscription bigint, wakes_at bigint, next text, tat bigint, failures bigint, failing_since bigint,
       dead integer, warned integer, window_at bigint, results integer, failed integer, open_until bigint,
       trips integer, holds boolean, stopped_at bigint, stopped_why text, last_success_at bigint,
       last_failure_at bigint, at_once bigint, prompt bigint)
 where h.subscription_id = i.subscription;

-- name: next_wake
select case when exists (select 1 from towpath.webhook_delivery_jobs j
                          where j.finished_at is not null and j.applied_at is null) then 0
            else (select min(h.wakes_at) from towpath.subscription_health h
                   where h.wakes_at is not null) - {now} end as wait;
