-- Replays: which ended deliveries of a subscription are made again, some at a time.

-- name: last_saga
select coalesce(max(id), 0) from towpath.sagas;

-- name: last_letter
select coalesce(max(id), 0) from towpath.dead_letters;

-- Sagas that have ended, without those that were sent again: a newer saga of the same event follows
-- these.
-- name: sagas
select s.id, e.type from towpath.sagas s join towpath.webhook_events e on e.id = s.event_id
 where s.subscription_id = :subscription and s.status = :status and s.next_attempt_at is null
   and s.id > :after and s.id <= :upto and e.at >= :since and e.at < :until
   and not exists (select 1 from towpath.sagas n
                    where n.event_id = s.event_id and n.subscription_id = s.subscription_id
                      and n.replay_no > s.replay_no)
 order by s.id limit cast(:limit as bigint);

-- name: letters
select d.id, d.type from towpath.dead_letters d
 where d.subscription_id = :subscription and d.id > :after and d.id <= :upto
   and d.at >= :since and d.at < :until
   and not exists (select 1 from towpath.dead_letter_requeues r where r.dead_letter_id = d.id)
 order by d.id limit cast(:limit as bigint);

-- Locks the events, so that no prune deletes them now. If a prune was quicker, the next statement sees
-- it.
-- name: hold_events
select e.id from towpath.webhook_events e
 where e.id in (select s.event_id from towpath.sagas s where s.id {in_items saga bigint})
 order by e.id {for_update of e};

-- name: send_again
insert into towpath.sagas (event_id, subscription_id, status, attempt_count, next_attempt_at, replay_no,
                           replay_of, created_at, cancel_requested)
select s.event_id, s.subscription_id, 'Pending', 0, {now}, s.replay_no + 1, s.id, {now}, false
  from towpath.sagas s
  join towpath.webhook_events e on e.id = s.event_id
  join towpath.subscriptions u on u.id = s.subscription_id and u.deleted_at is null
 where s.id {in_items saga bigint} and s.finished_at is not null
   and not exists (select 1 from towpath.sagas n
                    where n.event_id = s.event_id and n.subscription_id = s.subscription_id
                      and n.replay_no > s.replay_no)
 order by s.id
returning id;
