-- Subscriptions: who is called, and the row of their health, which is held by every transaction that
-- moves their sagas. Rows are held in one order: channel, consumer, health.

-- name: add [sqlite]
insert into towpath.subscriptions (
       created_at, updated_at, since_channel, since, timeout, concurrency, pace, burst, paused, ordered,
       token, channel, url, types, filter_rule, waits, final, body, sealed, owner, description)
values (:now, :now, :since_channel, :since, :timeout, :concurrency, :pace, :burst, false, :ordered,
       :token, :channel, :url, :types, :filter_rule, :waits, :final, :body, '', :owner, :description)
on conflict (token) do nothing returning id;
insert into towpath.subscription_health (
       subscription_id, tat, failures, dead, warned, window_at, results, failed, trips, holds)
values (@id, 0, 0, 0, 0, 0, 0, 0, 0, false) returning subscription_id as id;

-- name: add [postgres]
with added as (
    insert into towpath.subscriptions (
           created_at, updated_at, since_channel, since, timeout, concurrency, pace, burst, paused, ordered,
           token, channel, url, types, filter_rule, waits, final, body, sealed, owner, description)
    values ({now}, {now}, :since_channel, :since, :timeout, :concurrency, :pace, :burst, false, :ordered,
           :token, :channel, :url, :types, :filter_rule, :waits, :final, :body, '', :owner, :description)
    on conflict (token) do nothing returning id),
healthy as (
    insert into towpath.subscription_health (
           subscription_id, tat, failures, dead, warned, window_at, results, failed, trips, holds)
    select id, 0, 0, 0, 0, 0, 0, 0, 0, false from added)
select id from added;

-- name: made_by
select id from towpath.subscriptions where token = :token;

-- name: begin_router
insert into towpath.consumer (channel, acked, generation, seen_at, name, lasting)
values (:channel, :acked, 1, {now}, :consumer, true) on conflict do nothing;

-- name: hold_router
select r.acked from towpath.consumer r
 where r.name = :consumer and r.channel = :channel {for_update of r};

-- name: end_router
delete from towpath.consumer
 where name = :consumer and channel = :number
   and not exists (select 1 from towpath.subscriptions u
                    where u.channel = :channel and u.deleted_at is null);

-- name: find
select u.id, u.created_at, u.updated_at, u.deleted_at, u.timeout, u.concurrency, u.pace, u.burst,
       u.paused, u.ordered, u.channel, u.url, u.types, u.filter_rule, u.waits, u.final, u.body, u.owner,
       u.description
  from towpath.subscriptions u where u.id {in_items subscription bigint};

-- name: list
select u.id, u.created_at, u.updated_at, u.deleted_at, u.timeout, u.concurrency, u.pace, u.burst,
       u.paused, u.ordered, u.channel, u.url, u.types, u.filter_rule, u.waits, u.final, u.body, u.owner,
       u.description
  from towpath.subscriptions u
 where u.id > :after and u.deleted_at is null
   and (cast(:channel as text) is null or u.channel = :channel)
   and (cast(:owner as text) is null or u.owner = :owner)
 order by u.id limit cast(:limit as bigint);

-- name: change
update towpath.subscriptions
   set updated_at = {now}, timeout = :timeout, concurrency = :concurrency, pace = :pace, burst = :burst,
       ordered = :ordered, url = :url, types = :types, filter_rule = :filter_rule, waits = :waits,
       final = :final, body = :body, owner = :owner, description = :description
 where id = :id;

-- name: sealed
select sealed, {now} as now from towpath.subscriptions where id = :id and deleted_at is null;

-- name: seal
update towpath.subscriptions set sealed = :sealed, updated_at = {now} where id = :id;

-- name: pause
update towpath.subscriptions set paused = :paused, updated_at = {now} where id = :id;

-- name: owned
select u.id from towpath.subscriptions u
 where u.owner = :owner and u.deleted_at is null and not u.paused order by u.id;

-- name: pause_some
update towpath.subscriptions set paused = true, updated_at = {now} where id {in_items subscription bigint};

-- name: enable
update towpath.subscription_health
   set failures = 0, failing_since = null, dead = 0, results = 0, failed = 0,
       warned = case when warned > 0 or stopped_at is not null then cast(:told as integer) else 0 end,
       open_until = null, trips = 0, stopped_at = null, stopped_why = null
 where subscription_id = :id;

-- name: delete
update towpath.subscriptions set deleted_at = {now}, updated_at = {now}, sealed = '' where id = :id;

-- name: unfinished
select count(*) from towpath.webhook_delivery_jobs
 where subscription_id = :id and finished_at is null;

-- The last attempts, by the newest sagas of each status: their line has an index, and attempts have none.
-- name: recent [sqlite]
select j.finished_at, j.duration, j.error_code
  from towpath.webhook_delivery_jobs j
 where j.saga_id in (
         select id from (select n.id from towpath.sagas n
                          where n.subscription_id = :subscription and n.status = 'Completed'
                          order by n.next_attempt_at desc, n.id desc limit :limit)
         union all
         select id from (select n.id from towpath.sagas n
                          where n.subscription_id = :subscription and n.status = 'DeadLettered'
                          order by n.next_attempt_at desc, n.id desc limit :limit)
         union all
         select id from (select n.id from towpath.sagas n
                          where n.subscription_id = :subscription and n.status = 'Cancelled'
                          order by n.next_attempt_at desc, n.id desc limit :limit)
         union all
         select id from (select n.id from towpath.sagas n
                          where n.subscription_id = :subscription and n.status = 'PendingRetry'
                          order by n.next_attempt_at desc, n.id desc limit :limit)
         union all
         select id from (select n.id from towpath.sagas n
                          where n.subscription_id = :subscription and n.status = 'InProgress'
                          order by n.next_attempt_at desc, n.id desc limit :limit)
         union all
         select id from (select n.id from towpath.sagas n
                          where n.subscription_id = :subscription and n.status = 'Held'
                          order by n.next_attempt_at desc, n.id desc limit :limit))
   and +j.status in ('Completed', 'Failed')
 order by j.finished_at desc, j.id desc limit :limit;

-- name: recent [postgres]
select j.finished_at, j.duration, j.error_code
  from (values ('Completed'), ('DeadLettered'), ('Cancelled'), ('PendingRetry'), ('InProgress'),
               ('Held')) t(status)
 cross join lateral (
       select n.id from towpath.sagas n where n.subscription_id = :subscription and n.status = t.status
        order by n.next_attempt_at desc, n.id desc limit cast(:limit as bigint)) s
 cross join lateral (
       select k.* from towpath.webhook_delivery_jobs k where k.saga_id = s.id offset 0) j
 where j.status in ('Completed', 'Failed')
 order by j.finished_at desc, j.id desc limit cast(:limit as bigint);

-- name: health
select h.subscription_id, h.failures, h.failing_since, h.open_until, h.stopped_at, h.stopped_why,
       h.last_success_at, h.last_failure_at,
       (select count(*) from towpath.sagas s
         where s.subscription_id = h.subscription_id and s.status = 'Pending')
     + (select count(*) from towpath.sagas s
         where s.subscription_id = h.subscription_id and s.status = 'PendingRetry') as waiting,
       (select count(*) from towpath.sagas s
         where s.subscription_id = h.subscription_id and s.status = 'InProgress') as in_progress,
       (select count(*) from towpath.sagas s
         where s.subscription_id = h.subscription_id and s.status = 'Held') as held,
       (select count(*) from towpath.dead_letters d
         where d.subscription_id = h.subscription_id
           and not exists (select 1 from towpath.dead_letter_requeues r where r.dead_letter_id = d.id)
       ) as dead_letters
  from towpath.subscription_health h
 where h.subscription_id {in_items subscription bigint} order by h.subscription_id;
