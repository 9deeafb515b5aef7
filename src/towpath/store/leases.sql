-- How a lease ends or is extended, by its holder or because its time is over.

-- PostgreSQL ends the streams of jobs by the statement that ends the jobs. On SQLite another statement
-- of the same transaction does it, so that a job without a stream costs nothing more.
-- `streams.end_with_try` ends a stream whose last try has said nothing while an earlier one has.

-- A write comes first, as in enqueue.
-- name: complete [sqlite]
delete from towpath.unique_key where (topic, key) in (
    select l.topic, l.key from {items i(seq bigint, epoch bigint)}
     cross join towpath.lease l on l.seq = i.seq and l.epoch = i.epoch
     where l.key is not null);
insert into towpath.done ({ticket}, finished_at, prune_at, duration, cancelled, result)
select {ticket l}, :now, :now + i.retention, max(0, :now - l.reserved_at), false, i.result
  from {items i(seq bigint, epoch bigint, retention bigint, result text)}
 cross join towpath.lease l on l.seq = i.seq and l.epoch = i.epoch
 where true on conflict do nothing;
insert into towpath.histogram (minute, topic, run_bucket, wait_bucket, completed, duration, waited)
select :now / 60000000, l.topic, {bucket :now - l.reserved_at}, i.wait_bucket, count(*),
       sum(max(0, :now - l.reserved_at)), sum(i.waited)
  from {items i(seq bigint, epoch bigint, waited bigint, wait_bucket bigint)}
 cross join towpath.lease l on l.seq = i.seq and l.epoch = i.epoch
 where true group by 2, 3, 4
on conflict (minute, topic, run_bucket, wait_bucket) do update
   set completed = completed + excluded.completed, duration = duration + excluded.duration,
       waited = waited + excluded.waited;
insert into towpath.ended (parent, completed, result)
select l.seq, true, i.result from {items i(seq bigint, epoch bigint, result text)}
 cross join towpath.lease l on l.seq = i.seq and l.epoch = i.epoch
 where l.awaited on conflict do nothing;
delete from towpath.lease where seq in (
    select l.seq from {items i(seq bigint, epoch bigint)}
     cross join towpath.lease l on l.seq = i.seq and l.epoch = i.epoch)
returning seq, epoch, topic, limit_key, awaited, streamed, 'completed' as goal, null as stream;

-- PostgreSQL expects a hundred items in every list, and would read all leases rather than look up so
-- many; the array makes it look them up. The join is full because any other one would compare each row
-- with each.
-- name: complete [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select distinct on (seq, epoch) *
      from json_to_recordset(cast(:items as json)) as i(
           seq bigint, epoch bigint, retention bigint, result text, waited bigint, wait_bucket bigint)
     order by seq, epoch),
deleted as (
    delete from towpath.lease l
     where l.seq = any(array(select seq from item))
       and ((l.seq, l.epoch) in (select seq, epoch from item)) is true
    returning l.*),
matched as materialized (
    select d.*, i.retention, i.result, i.waited, i.wait_bucket
      from deleted d full join item i on i.seq = d.seq and i.epoch = d.epoch),
gone as materialized (select * from matched where seq is not null),
finished as (
    insert into towpath.done ({ticket}, finished_at, prune_at, duration, cancelled, result)
    select {ticket}, now, now + retention, greatest(0, now - reserved_at), false, result from gone, clock),
unkeyed as (
    delete from towpath.unique_key where ctid = any(array(
        select k.tid from gone g cross join lateral (
            select ctid as tid from towpath.unique_key where topic = g.topic and key = g.key limit 1) k
         where g.key is not null))),
told as (
    insert into towpath.ended (parent, completed, result)
    select seq, true, result from gone where awaited on conflict do nothing),
counted as (
    insert into towpath.tally (at, topic, completed, failed, duration, run_bucket, wait_bucket, waited)
    select now, topic, count(*), 0, sum(greatest(0, now - reserved_at)),
           {bucket now - reserved_at}, wait_bucket, sum(waited)
      from gone, clock group by now, topic, 6, 7),
closed as (
    update towpath.channel c set closed_at = {now}, ended = 'completed'
      from gone g
     where c.job = any(array(select seq from gone where streamed))
       and c.job is not null and c.closed_at is null
       and g.seq = c.job and coalesce(c.epoch, g.epoch) = g.epoch
    returning c.job, c.name)
select seq, epoch, topic, limit_key, awaited, streamed, 'completed' as goal, c.name as stream
  from gone left join closed c on c.job = seq;

-- Every other end of a lease after which the job stays: in ready, delayed or buried, or cancelled if
-- that was requested. A failure leaves its record, any other try a note of its outcome, begin and
-- worker; both are kept for the last hundred reservations of the job. A lease whose time was over must
-- still be over: its holder may have extended it.
-- name: settle [sqlite]
delete from towpath.lease
 where seq = :seq and epoch = :epoch and (:timed_out = 0 or until <= :now)
returning seq, topic, coalesce(:priority, priority) as priority, epoch, key,
          nullif(coalesce(retries, 0) + :retried, 0) as retries,
          nullif(coalesce(crashes, 0) + :crashed, 0) as crashes,
          nullif(coalesce(timeouts, 0) + :timed_out, 0) as timeouts,
          nullif(coalesce(releases, 0) + :released, 0) as releases,
          nullif(coalesce(buries, 0) + (:goal = 'buried'), 0) as buries, kicks, limit_key, awaited,
          streamed,
          case when cancelled then 'cancelled' else :goal end as goal,
          max(0, :now - reserved_at) as duration, reserved_at,
          coalesce(worker, :worker, (select s.worker from towpath.session s
                                      where s.id = towpath.lease.session)) as worker,
          case when :error is not null then null when cancelled then 'cancelled' else :noted end as noted;
update towpath.job set priority = @priority where seq = @seq and priority <> @priority;
delete from towpath.unique_key
 where topic = @topic and key = @key and @goal in ('buried', 'cancelled');
insert into towpath.ready ({ticket}) select {ticket @} where @goal = 'ready';
insert into towpath.delayed ({ticket}, run_at)
select {ticket @}, :now + :delay where @goal = 'delayed';
insert into towpath.buried ({ticket}, buried_at) select {ticket @}, :now where @goal = 'buried';
insert into towpath.done ({ticket}, finished_at, prune_at, duration, cancelled)
select {ticket @}, :now, :now + :retention, @duration, true where @goal = 'cancelled';
insert into towpath.failure (seq, epoch, failed_at, kind, error, traceback, reserved_at, worker)
select @seq, @epoch, :now, :kind, :error, :traceback, @reserved_at, @worker
 where :error is not null on conflict do nothing;
delete from towpath.failure where seq = @seq and epoch <= @epoch - 100 and :error is not null;
insert into towpath.note (seq, kind, no, epoch, at, text)
select @seq, 'try', @epoch, @epoch, :now, @noted || ' ' || @reserved_at || ' ' || coalesce(@worker, '')
 where @noted is not null on conflict do nothing;
delete from towpath.note
 where seq = @seq and kind = 'try' and no <= @epoch - 100 and @noted is not null;
insert into towpath.ended (parent, completed)
select @seq, false where @awaited and @goal in ('buried', 'cancelled') on conflict do nothing;
insert into towpath.minute (minute, topic, completed, failed, duration, retried, crashed)
select :now / 60000000, @topic, 0, :error is not null and @goal = 'buried', 0,
       :retried and @goal in ('ready', 'delayed'), :crashed
 where :error is not null and @goal = 'buried' or :retried or :crashed
on conflict (minute, topic) do update
   set failed = failed + excluded.failed, retried = retried + excluded.retried,
       crashed = crashed + excluded.crashed;
select @seq as seq, @epoch as epoch, @topic as topic, @limit_key as limit_key, @awaited as awaited,
       @streamed as streamed, @goal as goal, null as stream;

-- name: settle [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select i.*, row_number() over () as nth from json_to_recordset(cast(:items as json)) as i(
           seq bigint, epoch bigint, goal text, delay bigint, priority bigint,
           retried integer, crashed integer, timed_out integer, released integer,
           retention bigint, kind text, error text, traceback text, noted text, worker text)),
left_behind as (
    delete from towpath.lease l using item i
     where l.seq = any(array(select seq from item)) and l.seq = i.seq and l.epoch = i.epoch
       and (i.timed_out = 0 or l.until <= {now})
    returning l.seq, l.topic, coalesce(i.priority, l.priority) as priority, l.epoch, l.key,
              nullif(coalesce(l.retries, 0) + i.retried, 0) as retries,
              nullif(coalesce(l.crashes, 0) + i.crashed, 0) as crashes,
              nullif(coalesce(l.timeouts, 0) + i.timed_out, 0) as timeouts,
              nullif(coalesce(l.releases, 0) + i.released, 0) as releases,
              nullif(coalesce(l.buries, 0) + (i.goal = 'buried')::integer, 0) as buries, l.kicks,
              l.limit_key, l.awaited, l.streamed, l.reserved_at,
              case when l.cancelled then 'cancelled' else i.goal end as goal,
              coalesce(l.worker, i.worker, (select s.worker from towpath.session s
                                             where s.id = l.session)) as worker,
              case when i.error is not null then null when l.cancelled then 'cancelled'
                   else i.noted end as noted,
              i.nth, i.delay, i.retention, i.kind, i.error, i.traceback, i.retried, i.crashed),
repriced as (
    update towpath.job j set priority = g.priority from left_behind g
     where j.seq = g.seq and j.priority <> g.priority),
unkeyed as (
    delete from towpath.unique_key k using left_behind g
     where k.topic = g.topic and k.key = g.key and g.goal in ('buried', 'cancelled')),
readied as (
    insert into towpath.ready ({ticket}) select {ticket} from left_behind where goal = 'ready'),
postponed as (
    insert into towpath.delayed ({ticket}, run_at)
    select {ticket}, now + delay from left_behind, clock where goal = 'delayed'),
buried as (
    insert into towpath.buried ({ticket}, buried_at)
    select {ticket}, now from left_behind, clock where goal = 'buried' order by nth),
finished as (
    insert into towpath.done ({ticket}, finished_at, prune_at, duration, cancelled)
    select {ticket}, now, now + retention, greatest(0, now - reserved_at), true
      from left_behind, clock where goal = 'cancelled'),
failed as (
    insert into towpath.failure (seq, epoch, failed_at, kind, error, traceback, reserved_at, worker)
    select seq, epoch, now, kind, error, traceback, reserved_at, worker from left_behind, clock
     where error is not null on conflict do nothing),
noted as (
    insert into towpath.note (seq, kind, no, epoch, at, text)
    select seq, 'try', epoch, epoch, now, noted || ' ' || reserved_at || ' ' || coalesce(worker, '')
      from left_behind, clock where noted is not null on conflict do nothing),
forgotten as (
    delete from towpath.note n using left_behind g
     where n.seq = g.seq and n.kind = 'try' and g.noted is not null and n.no <= g.epoch - 100),
told as (
    insert into towpath.ended (parent, completed)
    select seq, false from left_behind
     where awaited and goal in ('buried', 'cancelled') on conflict do nothing),
counted as (
    insert into towpath.tally (at, topic, completed, failed, duration, retried, crashed)
    select now, topic, 0, count(*) filter (where error is not null and goal = 'buried'), 0,
           count(*) filter (where retried > 0 and goal in ('ready', 'delayed')), sum(crashed)
      from left_behind, clock
     where error is not null and goal = 'buried' or retried > 0 or crashed > 0 group by now, topic),
trimmed as (
    delete from towpath.failure f using left_behind g
     where f.seq = g.seq and g.error is not null and f.epoch <= g.epoch - 100),
closed as (
    update towpath.channel c
       set closed_at = {now}, ended = case when g.goal = 'buried' then 'failed'
                                           when g.kind = 'expired' then 'expired' else g.goal end
      from left_behind g
     where c.job = any(array(select seq from left_behind where streamed))
       and c.job is not null and c.closed_at is null
       and g.seq = c.job and coalesce(c.epoch, g.epoch) = g.epoch
       and g.goal in ('buried', 'cancelled')
    returning c.job, c.name)
select seq, epoch, topic, limit_key, awaited, streamed, goal, c.name as stream
  from left_behind left join closed c on c.job = seq;

-- The end of a lease after which its job is gone.
-- name: discard [sqlite]
delete from towpath.lease
 where seq = :seq and epoch = :epoch and (:timed_out = 0 or until <= :now)
returning seq, epoch, topic, key, limit_key, awaited, streamed,
          case when streamed then (
              select c.name from towpath.channel c
               where c.job = towpath.lease.seq and c.name is not null) end as stream;
delete from towpath.unique_key where topic = @topic and key = @key;
insert into towpath.ended (parent, completed) select @seq, false where @awaited
on conflict do nothing;
{forget};
select @seq as seq, @epoch as epoch, @topic as topic, @limit_key as limit_key, @awaited as awaited,
       @streamed as streamed, 'gone' as goal, @stream as stream;

-- name: discard [postgres]
with item as materialized (
    select * from {items i(seq bigint, epoch bigint, timed_out integer)}),
gone as (
    delete from towpath.lease l using item i
     where l.seq = any(array(select seq from item)) and l.seq = i.seq and l.epoch = i.epoch
       and (i.timed_out = 0 or l.until <= {now})
    returning l.*),
unkeyed as (
    delete from towpath.unique_key k using gone g where k.topic = g.topic and k.key = g.key),
told as (
    insert into towpath.ended (parent, completed)
    select seq, false from gone where awaited on conflict do nothing),
{forget}
select seq, epoch, topic, limit_key, awaited, streamed, 'gone' as goal, case when streamed then (
           select c.name from towpath.channel c
            where c.job = gone.seq and c.name is not null) end as stream
  from gone;

-- name: touch [sqlite]
update towpath.lease
   set until = case when until is not null then :now + :ttr end,
       touches = touches + 1, touched_at = :now
 where seq = :seq and epoch = :epoch
   and (:max_touches is null or touches < :max_touches)
   and (:min_interval is null or :now - coalesce(touched_at, reserved_at) >= :min_interval)
   and (:max_duration is null or :now - reserved_at <= :max_duration)
returning :nth as nth, until, cancelled;

-- name: touch [postgres]
with item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           nth integer, seq bigint, epoch bigint, ttr bigint,
           max_touches integer, min_interval bigint, max_duration bigint))
update towpath.lease l
   set until = case when until is not null then {now} + i.ttr end,
       touches = touches + 1, touched_at = {now}
  from item i
 where l.seq = any(array(select seq from item)) and l.seq = i.seq and l.epoch = i.epoch
   and (i.max_touches is null or l.touches < i.max_touches)
   and (i.min_interval is null or {now} - coalesce(touched_at, reserved_at) >= i.min_interval)
   and (i.max_duration is null or {now} - reserved_at <= i.max_duration)
returning i.nth, l.until, l.cancelled;

-- Where a job is whose lease did not match, and whether this very try was recorded as failed.
-- name: whereabouts [sqlite]
select :nth as nth, l.topic, l.state, l.epoch,
       exists (select 1 from towpath.failure f
                where f.seq = :seq and f.epoch = :epoch and f.kind = 'error') as failed,
       t.touches, :now - coalesce(t.touched_at, t.reserved_at) as idle
  from towpath.located l left join towpath.lease t on t.seq = l.seq where l.seq = :seq;

-- name: whereabouts [postgres]
select i.nth, w.topic, w.state, w.epoch,
       exists (select 1 from towpath.failure f
                where f.seq = i.seq and f.epoch = i.epoch and f.kind = 'error') as failed,
       w.touches, {now} - coalesce(w.touched_at, w.reserved_at) as idle
  from json_to_recordset(cast(:items as json)) as i(nth integer, seq bigint, epoch bigint),
       lateral (select l.topic, l.state, l.epoch, t.touches, t.touched_at, t.reserved_at
                  from towpath.located l left join towpath.lease t on t.seq = l.seq
                 where l.seq = i.seq limit 1) w;

-- A lease that another transaction is ending at this moment is left to it.
-- name: expired [sqlite]
select l.seq, l.epoch, j.options from towpath.lease l join towpath.job j on j.seq = l.seq
 where l.topic = :topic and l.until <= :now order by l.until limit :limit;

-- name: expired [postgres]
select e.seq, e.epoch, (select j.options from towpath.job j where j.seq = e.seq)
  from json_to_recordset(cast(:items as json)) as i(topic text),
       lateral (select l.seq, l.epoch from towpath.lease l
                 where l.topic = i.topic and l.until <= {now} order by l.until
                 limit cast(:limit as bigint) for update skip locked) e;

-- A lease that was given or touched after now is from before the clock was set back: its whole time
-- begins again. PostgreSQL does not wait for a lease that another transaction holds.
-- name: move_near [sqlite]
update towpath.lease
   set until = case when coalesce(touched_at, reserved_at) > :now
                    then :now + until - coalesce(touched_at, reserved_at) else until end,
       reserved_at = min(reserved_at, :now), touched_at = min(touched_at, :now)
 where reserved_at > :now or touched_at > :now;

-- name: move_near [postgres]
with picked as materialized (
    select seq from towpath.lease where reserved_at > {now} or touched_at > {now}
       for update skip locked)
update towpath.lease l
   set until = case when coalesce(touched_at, reserved_at) > {now}
                    then {now} + until - coalesce(touched_at, reserved_at) else until end,
       reserved_at = least(reserved_at, {now}),
       touched_at = case when touched_at > {now} then {now} else touched_at end
 where l.seq = any(array(select seq from picked));

-- name: count_ahead
select count(*) from towpath.lease where reserved_at > {now} or touched_at > {now};
