-- Dead letters: read, and delivered again.

-- name: find
select d.id, d.saga_id, d.subscription_id, d.event, d.type, d.at, d.failed_at, d.final_error_code,
       (select max(r.saga_id) from towpath.dead_letter_requeues r where r.dead_letter_id = d.id) as requeued_as,
       d.payload_snapshot, d.encoding
  from towpath.dead_letters d where d.id = :letter;

-- name: list
select d.id, d.saga_id, d.subscription_id, d.event, d.type, d.at, d.failed_at, d.final_error_code,
       (select max(r.saga_id) from towpath.dead_letter_requeues r where r.dead_letter_id = d.id) as requeued_as,
       d.payload_snapshot, d.encoding
  from towpath.dead_letters d where d.id < :before order by d.id desc limit :limit;

-- name: list_of
select d.id, d.saga_id, d.subscription_id, d.event, d.type, d.at, d.failed_at, d.final_error_code,
       (select max(r.saga_id) from towpath.dead_letter_requeues r where r.dead_letter_id = d.id) as requeued_as,
       d.payload_snapshot, d.encoding
  from towpath.dead_letters d where d.subscription_id = :subscription and d.id < :before
 order by d.id desc limit :limit;

-- name: newest_requeue
select coalesce(max(saga_id), 0) from towpath.dead_letter_requeues;

-- The operator of PostgreSQL may do no more than call this function, which is a part of the tables.
-- Health rows are held in one order.
-- name: requeue [sqlite]
select d.id as letter, d.saga_id, d.event_id, d.event, d.type, d.subscription_id,
       u.id is not null as is_there, u.paused,
       (select s.id from towpath.sagas s
         where s.subscription_id = d.subscription_id and s.event_id = d.event_id
           and s.finished_at is null) as live
  from (select 1) left join towpath.dead_letters d on d.id = :letter
  left join towpath.subscriptions u on u.id = d.subscription_id and u.deleted_at is null;
insert into towpath.webhook_events (id, event, channel, seq, at, type, encoding, payload)
select d.event_id, d.event, d.channel, d.seq, d.at, d.type, d.encoding, d.payload_snapshot
  from towpath.dead_letters d
 where d.id = @letter and @is_there and @live is null
   and not exists (select 1 from towpath.webhook_events e where e.id = @event_id);
insert into towpath.sagas (event_id, subscription_id, status, attempt_count, next_attempt_at, replay_no,
                           replay_of, created_at, cancel_requested)
select @event_id, @subscription_id, 'Pending', 0, :now,
       (select coalesce(max(s.replay_no), 0) + 1 from towpath.sagas s
         where s.event_id = @event_id and s.subscription_id = @subscription_id),
       @saga_id, :now, false
 where @is_there and @live is null;
insert into towpath.dead_letter_requeues (saga_id, dead_letter_id, at, actor)
select s.id, @letter, :now, :actor from towpath.sagas s
 where s.subscription_id = @subscription_id and s.event_id = @event_id and s.finished_at is null
   and @live is null;
update towpath.subscription_health set wakes_at = min(coalesce(wakes_at, :now), :now)
 where subscription_id = @subscription_id and @is_there;
select :nth as nth,
       (select s.id from towpath.sagas s
         where s.subscription_id = @subscription_id and s.event_id = @event_id
           and s.finished_at is null and @live is null) as saga,
       case when @letter is null then 'missing' when not @is_there then 'deleted'
            when @live is not null then 'live' end as problem,
       @event as event, @type as type, @subscription_id as subscription_id, @saga_id as replay_of,
       :now as at,
       coalesce(@paused, false) or (select h.stopped_at from towpath.subscription_health h
                                     where h.subscription_id = @subscription_id) is not null as held;

-- name: requeue [postgres]
select i.nth, r.saga, r.problem, i.event, i.type, i.subscription_id, i.saga_id as replay_of, {now} as at,
       coalesce((select u.paused from towpath.subscriptions u where u.id = i.subscription_id), false)
       or (select h.stopped_at from towpath.subscription_health h
            where h.subscription_id = i.subscription_id) is not null as held
  from (select i.*, d.subscription_id, d.saga_id, d.event, d.type
          from json_to_recordset(cast(:items as json)) as i(nth integer, letter bigint, actor text)
          left join lateral (
               select d.subscription_id, d.saga_id, d.event, d.type
                 from towpath.dead_letters d where d.id = i.letter offset 0) d on true
         order by d.subscription_id, i.nth offset 0) i
 cross join lateral towpath.requeue_dead_letter(i.letter, i.actor, {now}) r;

-- name: requeued
select cast(:nth as integer) as nth, r.saga_id as saga, null as problem, d.event, d.type, d.subscription_id,
       d.saga_id as replay_of, r.at,
       coalesce((select u.paused from towpath.subscriptions u where u.id = d.subscription_id), false)
       or (select h.stopped_at from towpath.subscription_health h
            where h.subscription_id = d.subscription_id) is not null as held
  from towpath.dead_letter_requeues r join towpath.dead_letters d on d.id = r.dead_letter_id
 where r.dead_letter_id = :letter and r.actor = :actor and r.saga_id > :newest
 order by r.saga_id desc limit 1;

-- name: delete_requeues
delete from towpath.dead_letter_requeues where dead_letter_id = :letter;

-- name: delete
delete from towpath.dead_letters where id = :letter returning id;
