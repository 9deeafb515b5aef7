-- Sagas: read, cancelled, sent again. `advancing` moves them on.

-- name: hold_health
select h.subscription_id from towpath.subscription_health h
 where h.subscription_id {in_items subscription bigint} order by h.subscription_id {for_update of h};

-- Writes the row even if the subscription is awake: a round of the orchestrator that has not seen the
-- new sagas may be about to put it to sleep.
-- name: wake [sqlite]
update towpath.subscription_health set wakes_at = min(coalesce(wakes_at, :now), :now)
 where subscription_id {in_items subscription bigint};

-- name: wake [postgres]
update towpath.subscription_health h set wakes_at = least(h.wakes_at, {now})
 where h.subscription_id = any(array(
       select l.subscription_id from towpath.subscription_health l
        where l.subscription_id {in_items subscription bigint} order by l.subscription_id for update));

-- name: owners_of
select s.id, s.subscription_id from towpath.sagas s where s.id {in_items saga bigint};

-- name: cancel
update towpath.sagas set status = 'Cancelled', finished_at = {now}, next_attempt_at = null
 where id {in_items saga bigint} and status in ('Pending', 'PendingRetry', 'Held');

-- name: ask
update towpath.sagas set cancel_requested = true
 where id {in_items saga bigint} and status = 'InProgress' and not cancel_requested;

-- A job without a lease becomes Cancelled. A leased job gets a mark: if its lease is lost, it is not
-- tried again. One statement does both: a claim or a reset at the same time comes before or after it as
-- a whole.
-- name: cancel_jobs
update towpath.webhook_delivery_jobs
   set status = case when lease_until is null then 'Cancelled' else status end,
       finished_at = case when lease_until is null then {now} end, cancel_requested = true
 where saga_id {in_items saga bigint} and finished_at is null;

-- name: cancel_some
update towpath.sagas set status = 'Cancelled', finished_at = {now}, next_attempt_at = null
 where id {in
       select s.id from towpath.sagas s
        where s.subscription_id = :subscription and s.finished_at is null
          and s.status <> 'InProgress' limit :limit}
returning id;

-- name: ask_all
update towpath.sagas set cancel_requested = true
 where subscription_id = :subscription and status = 'InProgress' and not cancel_requested;

-- name: cancel_jobs_of
update towpath.webhook_delivery_jobs
   set status = case when lease_until is null then 'Cancelled' else status end,
       finished_at = case when lease_until is null then {now} end, cancel_requested = true
 where subscription_id = :subscription and finished_at is null;

-- Holds the event's row, as a prune may be about to delete the saga and the event.
-- name: hold_event
select e.id from towpath.webhook_events e
 where e.id = (select s.event_id from towpath.sagas s where s.id = :saga) {for_update of e};

-- name: target
select u.id, u.deleted_at is not null as deleted, u.paused, h.stopped_at is not null as stopped
  from towpath.subscriptions u join towpath.subscription_health h on h.subscription_id = u.id
 where u.id = :subscription;

-- name: live
select s.id, s.replay_of from towpath.sagas o
  join towpath.sagas s on s.subscription_id = o.subscription_id and s.event_id = o.event_id
 where o.id = :saga and s.finished_at is null;

-- name: send_again
insert into towpath.sagas (event_id, subscription_id, status, attempt_count, next_attempt_at, replay_no,
                           replay_of, created_at, cancel_requested)
select o.event_id, o.subscription_id, 'Pending', 0, {now},
       (select max(s.replay_no) + 1 from towpath.sagas s
         where s.event_id = o.event_id and s.subscription_id = o.subscription_id),
       o.id, {now}, false
  from towpath.sagas o where o.id = :saga
returning id;

-- name: letter
select d.id from towpath.dead_letters d where d.saga_id = :saga;

-- name: add_ping [sqlite]
insert into towpath.webhook_events (channel, seq, at, event, type, encoding, payload)
values (0, 0, :now, :event, :type, :encoding, :payload) on conflict (event) do nothing;
insert into towpath.sagas (event_id, subscription_id, status, attempt_count, next_attempt_at, replay_no,
                           created_at, cancel_requested)
select e.id, :subscription, 'Pending', 0, :now, 0, :now, false
  from towpath.webhook_events e where e.event = :event
on conflict do nothing;
select s.id from towpath.webhook_events e
  join towpath.sagas s on s.event_id = e.id and s.subscription_id = :subscription where e.event = :event;

-- name: add_ping [postgres]
with event as (
    insert into towpath.webhook_events (channel, seq, at, event, type, encoding, payload)
    values (0, 0, {now}, :event, :type, :encoding, :payload) on conflict (event) do nothing returning id),
made as (
    insert into towpath.sagas (event_id, subscription_id, status, attempt_count, next_attempt_at, replay_no,
                               created_at, cancel_requested)
    select id, :subscription, 'Pending', 0, {now}, 0, {now}, false from event
    returning id)
select id from made
union all
select s.id from towpath.webhook_events e
  join towpath.sagas s on s.event_id = e.id and s.subscription_id = :subscription where e.event = :event;

-- name: find
select s.id, e.event, e.type, s.subscription_id, s.status, s.attempt_count, s.next_attempt_at,
       s.created_at, s.finished_at, s.replay_of, s.cancel_requested, s.last_error
  from towpath.sagas s join towpath.webhook_events e on e.id = s.event_id
 where s.id {in_items saga bigint};

-- name: find_by_event
select s.id, e.event, e.type, s.subscription_id, s.status, s.attempt_count, s.next_attempt_at,
       s.created_at, s.finished_at, s.replay_of, s.cancel_requested, s.last_error
  from towpath.webhook_events e join towpath.sagas s on s.event_id = e.id
 where e.event = :event order by s.id;

-- name: list
select s.id, e.event, e.type, s.subscription_id, s.status, s.attempt_count, s.next_attempt_at,
       s.created_at, s.finished_at, s.replay_of, s.cancel_requested, s.last_error
  from towpath.sagas s join towpath.webhook_events e on e.id = s.event_id
 where s.id < :before
   and (cast(:subscription as bigint) is null or s.subscription_id = :subscription)
   and (cast(:status as text) is null or s.status = :status)
   and (cast(:type as text) is null or e.type = :type)
 order by s.id desc limit cast(:limit as bigint);

-- name: attempts
select id, saga_id, attempt_no, status, attempt_at, finished_at, response_status, error_code, duration,
       excerpt, location, worker_id, lease_until, lease_losses
  from towpath.webhook_delivery_jobs where saga_id = :saga order by attempt_no;
