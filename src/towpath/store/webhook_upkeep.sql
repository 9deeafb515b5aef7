-- Upkeep of webhooks: old rows go, and no subscription is forgotten.

-- Sagas have numbers in the order in which they were made: behind the first that is not `old` none is
-- due, so the look ends there and begins again.
-- name: visit_sagas
select s.id, s.event_id, s.created_at < {now} - cast(:age as bigint) as old,
       coalesce(s.finished_at < {now} - cast(:age as bigint), false) as over
  from towpath.sagas s where s.id > :after order by s.id limit :limit;

-- name: drop_sagas [sqlite]
delete from towpath.webhook_delivery_jobs where saga_id = :saga;
delete from towpath.sagas where id = :saga and finished_at is not null;

-- name: drop_sagas [postgres]
with jobs as (delete from towpath.webhook_delivery_jobs where saga_id {in_items saga bigint})
delete from towpath.sagas where id {in_items saga bigint} and finished_at is not null;

-- Holds the events; the next statement looks for their sagas. A requeue holds its event, too: the event
-- is skipped while it does, and afterwards the new saga is seen.
-- name: hold_events
select e.id from towpath.webhook_events e where e.id {in_items event bigint} {skip_locked of e};

-- name: drop_events
delete from towpath.webhook_events
 where id {in_items event bigint}
   and not exists (select 1 from towpath.sagas s where s.event_id = towpath.webhook_events.id);

-- An event without sagas is left over where two prunes each dropped a saga of it, and saw the other's.
-- name: visit_events
select e.id, (select 1 from towpath.sagas s where s.event_id = e.id limit 1) is null as unused
  from towpath.webhook_events e where e.id > :after order by e.id limit :limit;

-- name: drop_letters [sqlite]
delete from towpath.dead_letter_requeues where dead_letter_id in (
    select id from (select id, failed_at from towpath.dead_letters order by id limit :limit)
     where failed_at < :now - :age);
delete from towpath.dead_letters where id in (
    select id from (select id, failed_at from towpath.dead_letters order by id limit :limit)
     where failed_at < :now - :age)
returning id;

-- name: drop_letters [postgres]
with old as materialized (
    select id from (select id, failed_at from towpath.dead_letters
                     order by id limit cast(:limit as bigint)) d
     where failed_at < {now} - cast(:age as bigint)),
requeues as (
    delete from towpath.dead_letter_requeues where dead_letter_id = any(array(select id from old)))
delete from towpath.dead_letters where id = any(array(select id from old)) returning id;

-- name: deleted
select u.id, u.deleted_at < {now} - cast(:age as bigint) as old,
       (select 1 from towpath.sagas s
         where s.subscription_id = u.id and s.finished_at is null limit 1) is not null as unfinished,
       (select 1 from towpath.sagas s where s.subscription_id = u.id limit 1) is not null as has_sagas
  from towpath.subscriptions u where u.deleted_at is not null and u.id > :after order by u.id limit :limit;

-- name: drop_subscriptions [sqlite]
delete from towpath.subscription_health where subscription_id = :subscription
   and not exists (select 1 from towpath.sagas s where s.subscription_id = :subscription);
delete from towpath.subscriptions where id = :subscription
   and not exists (select 1 from towpath.sagas s where s.subscription_id = :subscription);

-- name: drop_subscriptions [postgres]
with gone as materialized (
    select i.subscription as id from {items i(subscription bigint)}
     where not exists (select from towpath.sagas s where s.subscription_id = i.subscription)),
healths as (
    delete from towpath.subscription_health where subscription_id = any(array(select id from gone)))
delete from towpath.subscriptions where id = any(array(select id from gone));

-- A subscription that sleeps though something is due and nothing is under way.
-- name: forgotten
select h.subscription_id, h.wakes_at is null
       and (select 1 from towpath.webhook_delivery_jobs j
             where j.subscription_id = h.subscription_id and j.finished_at is null limit 1) is null
       and ((select 1 from towpath.sagas s
              where s.subscription_id = h.subscription_id and s.status = 'Pending' limit 1) is not null
            or (select 1 from towpath.sagas s
                 where s.subscription_id = h.subscription_id and s.status = 'PendingRetry'
                   and s.next_attempt_at <= {now} limit 1) is not null
            or h.holds) as forgotten
  from towpath.subscription_health h
 where h.subscription_id > :after order by h.subscription_id limit :limit;

-- After the clock was set back: every subscription that sleeps wakes, and a time further ahead than is
-- possible becomes now.
-- name: wake_all
update towpath.subscription_health
   set wakes_at = {now}, tat = case when tat > {now} then {now} else tat end,
       open_until = case when open_until > {now} + cast(:longest as bigint) then {now} else open_until end
 where wakes_at > {now} or tat > {now} or open_until > {now} + cast(:longest as bigint);

-- name: hasten
update towpath.sagas set next_attempt_at = {now}
 where status = 'PendingRetry' and next_attempt_at > {now} + cast(:longest as bigint);

-- The worker may be alive, so its lease keeps as much time as a new one gets.
-- name: hasten_leases
update towpath.webhook_delivery_jobs set lease_until = {now} + cast(:longest as bigint)
 where status = 'Leased' and lease_until > {now} + cast(:longest as bigint);
