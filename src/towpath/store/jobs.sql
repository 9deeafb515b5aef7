-- Statements about jobs. Each PostgreSQL chain of CTEs stands beside the SQLite chain of statements
-- that does the same; what needs no chain is written once.

-- ---------------------------------------------------------------- enqueue

-- name: enqueue [sqlite]
insert into towpath.topic (name, created_at) values (:topic, :now) on conflict do nothing;
insert into towpath.job (id, topic, priority, key, payload, encoding, ttr, options, created_at, run_at)
values (:id, :topic, :priority, null, :payload, :encoding, :ttr, :options, :now,
        coalesce(:run_at, :now + :delay))
on conflict do nothing
returning seq, created_at, run_at, id;
insert into towpath.ready (seq, topic, priority) select :seq, :topic, :priority
 where :run_at <= :now;
insert into towpath.delayed (seq, topic, priority, run_at) select :seq, :topic, :priority, :run_at
 where :run_at > :now;

-- name: enqueue [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select i.*, coalesce(i.run_at, clock.now + i.delay) as due_at, clock.now
      from clock, json_to_recordset(cast(:items as json)) as i(
           nth integer, id uuid, topic text, priority bigint, payload text, encoding text,
           ttr bigint, options text, run_at bigint, delay bigint)),
opened as (
    insert into towpath.topic (name, created_at)
    select topic, now from (select distinct topic, now from item) as named
     where not exists (select from towpath.topic t where t.name = named.topic)
    on conflict do nothing),
made as (
    insert into towpath.job
           (id, topic, priority, payload, encoding, ttr, options, created_at, run_at)
    select id, topic, priority, payload, encoding, ttr, options, now, due_at
      from item order by nth
    on conflict do nothing
    returning seq, id, topic, priority, created_at, run_at),
readied as (
    insert into towpath.ready (seq, topic, priority)
    select seq, topic, priority from made where run_at <= created_at),
postponed as (
    insert into towpath.delayed (seq, topic, priority, run_at)
    select seq, topic, priority, run_at from made where run_at > created_at)
select seq, created_at, run_at,
       case when (select count(*) from made) < (select count(*) from item) then id end
  from made order by seq;

-- The key is taken before the job is made, by the id that the job will have.
-- name: enqueue_keyed [sqlite]
insert into towpath.topic (name, created_at) values (:topic, :now) on conflict do nothing;
insert into towpath.unique_key (topic, key, id) select :topic, :key, :id
 where not exists (select 1 from towpath.job where id = :id)
on conflict do nothing
returning key;
insert into towpath.job (id, topic, priority, key, payload, encoding, ttr, options, created_at, run_at)
values (:id, :topic, :priority, :key, :payload, :encoding, :ttr, :options, :now,
        coalesce(:run_at, :now + :delay))
returning seq, created_at, run_at, id;
insert into towpath.ready (seq, topic, priority, key) select :seq, :topic, :priority, :key
 where :run_at <= :now;
insert into towpath.delayed (seq, topic, priority, key, run_at)
select :seq, :topic, :priority, :key, :run_at where :run_at > :now;

-- name: enqueue_keyed [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select i.*, coalesce(i.run_at, clock.now + i.delay) as due_at, clock.now
      from clock, json_to_recordset(cast(:items as json)) as i(
           nth integer, id uuid, topic text, priority bigint, key text, payload text,
           encoding text, ttr bigint, options text, run_at bigint, delay bigint)),
opened as (
    insert into towpath.topic (name, created_at)
    select topic, now from (select distinct topic, now from item) as named
     where not exists (select from towpath.topic t where t.name = named.topic)
    on conflict do nothing),
claimed as (
    insert into towpath.unique_key (topic, key, id)
    select topic, key, id from (select distinct on (id) * from item order by id, nth) as first
     where not exists (select from towpath.job j where j.id = first.id)
     order by topic, key
    on conflict do nothing
    returning id),
made as (
    insert into towpath.job
           (id, topic, priority, key, payload, encoding, ttr, options, created_at, run_at)
    select id, topic, priority, key, payload, encoding, ttr, options, now, due_at
      from item where id in (select id from claimed) order by nth
    on conflict do nothing
    returning seq, id, topic, priority, key, created_at, run_at),
readied as (
    insert into towpath.ready (seq, topic, priority, key)
    select seq, topic, priority, key from made where run_at <= created_at),
postponed as (
    insert into towpath.delayed (seq, topic, priority, key, run_at)
    select seq, topic, priority, key, run_at from made where run_at > created_at)
select seq, created_at, run_at,
       case when (select count(*) from made) < (select count(*) from item) then id end
  from made order by seq;

-- What kept an item from being stored: its id, or its key.
-- name: standing [sqlite]
select :nth as nth, l.* from towpath.located l
 where l.id = coalesce((select id from towpath.job where id = :id),
                       (select id from towpath.unique_key where topic = :topic and key = :key));

-- name: standing [postgres]
select i.nth, s.* from json_to_recordset(cast(:items as json)) as i(
           nth integer, id uuid, topic text, key text),
       lateral (select l.* from towpath.located l
                 where l.id = coalesce((select j.id from towpath.job j where j.id = i.id),
                                       (select k.id from towpath.unique_key k
                                         where k.topic = i.topic and k.key = i.key)) limit 1) s;

-- A key whose job has finished, or was never made, is free.
-- name: free_stale_keys [sqlite]
delete from towpath.unique_key as k where k.topic = :topic and k.key = :key and not exists (
    select 1 from towpath.located l where l.id = k.id and l.topic = k.topic and l.key = k.key
       and l.state in ('ready', 'delayed', 'reserved'));

-- name: free_stale_keys [postgres]
delete from towpath.unique_key k
 using json_to_recordset(cast(:items as json)) as i(topic text, key text)
 where k.topic = i.topic and k.key = i.key and not exists (
    select from towpath.located l where l.id = k.id and l.topic = k.topic and l.key = k.key
       and l.state in ('ready', 'delayed', 'reserved'));

-- With a limit on topics or jobs, enqueues of one topic take turns.
-- name: lock_topics [sqlite]
select 1;

-- name: lock_topics [postgres]
lock table towpath.topic in share row exclusive mode;

-- name: count_topics
select count(*) from towpath.topic;

-- name: topic_exists
select 1 from towpath.topic where name = :topic;

-- name: count_unfinished
select (select count(*) from towpath.ready where topic = :topic)
     + (select count(*) from towpath.delayed where topic = :topic)
     + (select count(*) from towpath.lease where topic = :topic)
     + (select count(*) from towpath.buried where topic = :topic);

-- ---------------------------------------------------------------- reserve

-- Two workers must never take the same row. SQLite has one writer at a time; PostgreSQL locks the
-- rows it picks and steps over those that another worker holds. Neither takes anything while
-- something in these topics is due, which might be more urgent: the operation promotes it first.
-- name: reserve [sqlite]
delete from towpath.ready where (topic, priority, seq) in (
    select r.topic, r.priority, r.seq from towpath.ready r
     where r.topic = :topic order by r.priority, r.seq
     limit case when exists (select 1 from towpath.topic where name = :topic and paused_until > :now)
                  or exists (select 1 from towpath.delayed where topic = :topic and run_at <= :now)
                  or exists (select 1 from towpath.lease where topic = :topic and until <= :now)
                then 0 else :limit end)
returning {ticket};
insert into towpath.lease ({ticket}, reserved_at, token, session, until)
select :seq, :topic, :priority, :epoch + 1, :key,
       :retries, :crashes, :timeouts, :releases, :buries, :kicks,
       :now, :token, :session, case when :session is null then :now + ttr end
  from towpath.job where seq = :seq;
select j.seq, j.id, j.topic, 'reserved', :priority, j.key, j.payload, j.encoding, j.ttr, j.options,
       j.created_at, j.run_at, :epoch + 1, coalesce(:retries, 0), coalesce(:crashes, 0),
       coalesce(:timeouts, 0), coalesce(:releases, 0), coalesce(:buries, 0), coalesce(:kicks, 0),
       :now, case when :session is null then :now + j.ttr end, false, null, null, null,
       case when coalesce(:retries, 0) + coalesce(:crashes, 0) > 0 then (select e.error from towpath.failure e
         where e.seq = j.seq order by e.epoch desc limit 1) end, :session
  from towpath.job j where j.seq = :seq;

-- A range begins behind the worker's low-water mark, so that it does not walk over the dead rows
-- that an old transaction elsewhere keeps PostgreSQL from removing.
-- name: reserve [postgres]
with clock as materialized (select {now} as now),
range as materialized (
    select * from json_to_recordset(cast(:ranges as json)) as r(
           topic text, priority bigint, seq bigint, upto bigint, due_from bigint)),
due as materialized (
    select from range r, clock
     where exists (select from towpath.topic t where t.name = r.topic and t.paused_until > now)
        or exists (select from towpath.delayed d
                    where d.topic = r.topic and d.run_at between r.due_from and now)
        or exists (select from towpath.lease l
                    where l.topic = r.topic and l.until between r.due_from and now)),
picked as materialized (
    select t.tid from range r cross join lateral (
        select y.ctid as tid from towpath.ready y
         where y.topic = r.topic and (y.priority, y.seq) > (r.priority, r.seq)
           and y.priority <= r.upto and not exists (select from due)
         order by y.priority, y.seq limit cast(:limit as bigint) for update skip locked) t
     limit cast(:limit as bigint)),
gone as (
    delete from towpath.ready y where y.ctid = any(array(select tid from picked)) returning y.*),
taken as materialized (
    select j.id, g.topic, g.priority, g.key, j.payload, j.encoding, j.ttr, j.options, j.created_at,
           j.run_at, g.epoch + 1 as epoch, g.retries, g.crashes, g.timeouts, g.releases, g.buries,
           g.kicks, g.seq, clock.now,
           case when cast(:session as bigint) is null then clock.now + j.ttr end as until
      from gone g join towpath.job j on j.seq = g.seq, clock),
leased as (
    insert into towpath.lease ({ticket}, reserved_at, token, session, until)
    select {ticket}, now, cast(:token as bigint), cast(:session as bigint), until from taken)
select seq, id, topic, 'reserved', priority, key, payload, encoding, ttr, options, created_at, run_at,
       epoch, coalesce(retries, 0), coalesce(crashes, 0), coalesce(timeouts, 0),
       coalesce(releases, 0), coalesce(buries, 0), coalesce(kicks, 0), now, until, false,
       null, null, null,
       case when coalesce(retries, 0) + coalesce(crashes, 0) > 0 then (select e.error from towpath.failure e
         where e.seq = taken.seq order by e.epoch desc limit 1) end, cast(:session as bigint)
  from taken order by priority, seq;

-- The best of several topics: look without locking, let the operation choose, then take those.
-- name: candidates [sqlite]
select 1 where not exists (select 1 from towpath.delayed, json_each(:topics) t
                            where topic = t.value and run_at <= :now)
           and not exists (select 1 from towpath.lease, json_each(:topics) t
                            where topic = t.value and until <= :now);
select t.value as topic from json_each(:topics) t
 where not exists (select 1 from towpath.topic where name = t.value and paused_until > :now);
select topic, priority, seq from towpath.ready where topic = :topic
 order by priority, seq limit :limit;

-- name: candidates [postgres]
with clock as materialized (select {now} as now),
range as materialized (
    select * from json_to_recordset(cast(:ranges as json)) as r(
           topic text, priority bigint, seq bigint, upto bigint, due_from bigint)),
due as materialized (
    select from range r, clock
     where exists (select from towpath.delayed d
                    where d.topic = r.topic and d.run_at between r.due_from and now)
        or exists (select from towpath.lease l
                    where l.topic = r.topic and l.until between r.due_from and now))
select c.topic, c.priority, c.seq from range r, clock, lateral (
       select y.topic, y.priority, y.seq from towpath.ready y
        where y.topic = r.topic and (y.priority, y.seq) > (r.priority, r.seq)
          and y.priority <= r.upto and not exists (select from due)
          and not exists (select from towpath.topic t
                           where t.name = r.topic and t.paused_until > clock.now)
        order by y.priority, y.seq limit cast(:limit as bigint)) c
 order by c.priority, c.seq limit cast(:limit as bigint);

-- name: take [sqlite]
delete from towpath.ready where topic = :topic and priority = :priority and seq = :seq
returning {ticket};
insert into towpath.lease ({ticket}, reserved_at, token, session, until)
select :seq, :topic, :priority, :epoch + 1, :key,
       :retries, :crashes, :timeouts, :releases, :buries, :kicks,
       :now, :token, :session, case when :session is null then :now + ttr end
  from towpath.job where seq = :seq;
select j.seq, j.id, j.topic, 'reserved', :priority, j.key, j.payload, j.encoding, j.ttr, j.options,
       j.created_at, j.run_at, :epoch + 1, coalesce(:retries, 0), coalesce(:crashes, 0),
       coalesce(:timeouts, 0), coalesce(:releases, 0), coalesce(:buries, 0), coalesce(:kicks, 0),
       :now, case when :session is null then :now + j.ttr end, false, null, null, null,
       case when coalesce(:retries, 0) + coalesce(:crashes, 0) > 0 then (select e.error from towpath.failure e
         where e.seq = j.seq order by e.epoch desc limit 1) end, :session
  from towpath.job j where j.seq = :seq;

-- name: take [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           topic text, priority bigint, seq bigint)),
picked as materialized (
    select t.tid from item i cross join lateral (
        select y.ctid as tid from towpath.ready y
         where y.topic = i.topic and y.priority = i.priority and y.seq = i.seq
           for update skip locked) t),
gone as (
    delete from towpath.ready y where y.ctid = any(array(select tid from picked)) returning y.*),
taken as materialized (
    select j.id, g.topic, g.priority, g.key, j.payload, j.encoding, j.ttr, j.options, j.created_at,
           j.run_at, g.epoch + 1 as epoch, g.retries, g.crashes, g.timeouts, g.releases, g.buries,
           g.kicks, g.seq, clock.now,
           case when cast(:session as bigint) is null then clock.now + j.ttr end as until
      from gone g join towpath.job j on j.seq = g.seq, clock),
leased as (
    insert into towpath.lease ({ticket}, reserved_at, token, session, until)
    select {ticket}, now, cast(:token as bigint), cast(:session as bigint), until from taken)
select seq, id, topic, 'reserved', priority, key, payload, encoding, ttr, options, created_at, run_at,
       epoch, coalesce(retries, 0), coalesce(crashes, 0), coalesce(timeouts, 0),
       coalesce(releases, 0), coalesce(buries, 0), coalesce(kicks, 0), now, until, false,
       null, null, null,
       case when coalesce(retries, 0) + coalesce(crashes, 0) > 0 then (select e.error from towpath.failure e
         where e.seq = taken.seq order by e.epoch desc limit 1) end, cast(:session as bigint)
  from taken order by priority, seq;

-- The answer to a reservation was lost: these are its leases.
-- name: reserved_before
select l.* from towpath.located l join towpath.lease t on t.seq = l.seq
 where t.token = :token order by l.priority, l.seq;

-- When something in these topics will next change by itself, and the clock that says so.
-- name: next_due [sqlite]
select min(at), :now from (
    select (select min(run_at) from towpath.delayed where topic = t.value) as at
      from json_each(:topics) t
    union all
    select (select min(until) from towpath.lease where topic = t.value and until is not null)
      from json_each(:topics) t
    union all
    select (select paused_until from towpath.topic where name = t.value and paused_until > :now)
      from json_each(:topics) t);

-- name: next_due [postgres]
select least((select min(d.at) from json_array_elements_text(cast(:topics as json)) t,
                lateral (select run_at as at from towpath.delayed
                          where topic = t.value order by run_at limit 1) d),
             (select min(l.at) from json_array_elements_text(cast(:topics as json)) t,
                lateral (select until as at from towpath.lease
                          where topic = t.value and until is not null order by until limit 1) l),
             (select min(p.paused_until) from towpath.topic p
               where p.name in (select value from json_array_elements_text(cast(:topics as json)))
                 and p.paused_until > {now})), {now};

-- name: promote [sqlite]
delete from towpath.delayed where (topic, run_at, seq) in (
    select topic, run_at, seq from towpath.delayed
     where topic = :topic and run_at <= :now order by run_at, seq limit :limit)
returning {ticket};
insert into towpath.ready ({ticket})
values (:seq, :topic, :priority, :epoch, :key,
        :retries, :crashes, :timeouts, :releases, :buries, :kicks);

-- name: promote [postgres]
with clock as materialized (select {now} as now),
picked as materialized (
    select d.tid from json_to_recordset(cast(:items as json)) as i(topic text), clock,
           lateral (select y.ctid as tid from towpath.delayed y
                     where y.topic = i.topic and y.run_at <= clock.now
                     order by y.run_at, y.seq limit cast(:limit as bigint)
                       for update skip locked) d),
gone as (
    delete from towpath.delayed y where y.ctid = any(array(select tid from picked)) returning y.*)
insert into towpath.ready ({ticket}) select {ticket} from gone returning seq, topic;

-- ---------------------------------------------------------------- with a lease

-- name: complete [sqlite]
delete from towpath.lease where seq = :seq and epoch = :epoch
returning {ticket}, :now - reserved_at as duration, :nth as nth;
delete from towpath.unique_key where topic = :topic and key = :key;
insert into towpath.done ({ticket}, finished_at, prune_at, duration, cancelled, result)
values (:seq, :topic, :priority, :epoch, :key,
        :retries, :crashes, :timeouts, :releases, :buries, :kicks,
        :now, :now + :retention, :duration, false, :result);
insert into towpath.minute (minute, topic, completed, failed, duration)
values (:now / 60000000, :topic, 1, 0, :duration)
on conflict (minute, topic) do update
   set completed = completed + 1, duration = duration + excluded.duration;

-- PostgreSQL takes every list of items for a hundred and would rather read all leases than look up
-- so many; the array makes it look up.
-- name: complete [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           nth integer, seq bigint, epoch bigint, retention bigint, result text)),
gone as (
    delete from towpath.lease l using item i
     where l.seq = any(array(select seq from item)) and l.seq = i.seq and l.epoch = i.epoch
    returning l.*, i.nth, i.retention, i.result),
finished as (
    insert into towpath.done ({ticket}, finished_at, prune_at, duration, cancelled, result)
    select {ticket}, now, now + retention, now - reserved_at, false, result from gone, clock),
unkeyed as (
    delete from towpath.unique_key k using gone g
     where g.key is not null and k.topic = g.topic and k.key = g.key),
counted as (
    insert into towpath.tally (at, topic, completed, failed, duration)
    select now, topic, count(*), 0, sum(now - reserved_at) from gone, clock group by now, topic)
select {ticket}, null, nth from gone;

-- Every other end of a lease: to ready, delayed, buried, or gone; to cancelled if that was asked.
-- name: settle [sqlite]
delete from towpath.lease where seq = :seq and epoch = :epoch
returning seq, topic, coalesce(:priority, priority) as priority, epoch, key,
          nullif(coalesce(retries, 0) + :retried, 0) as retries,
          nullif(coalesce(crashes, 0) + :crashed, 0) as crashes,
          nullif(coalesce(timeouts, 0) + :timed_out, 0) as timeouts,
          nullif(coalesce(releases, 0) + :released, 0) as releases,
          nullif(coalesce(buries, 0) + (:goal = 'buried'), 0) as buries, kicks,
          case when cancelled and :goal <> 'gone' then 'cancelled' else :goal end as goal,
          :now - reserved_at as duration, :nth as nth;
update towpath.job set priority = :priority where seq = :seq and priority <> :priority;
delete from towpath.unique_key
 where topic = :topic and key = :key and :goal in ('buried', 'cancelled', 'gone');
insert into towpath.ready ({ticket})
select :seq, :topic, :priority, :epoch, :key,
       :retries, :crashes, :timeouts, :releases, :buries, :kicks where :goal = 'ready';
insert into towpath.delayed ({ticket}, run_at)
select :seq, :topic, :priority, :epoch, :key,
       :retries, :crashes, :timeouts, :releases, :buries, :kicks, :now + :delay
 where :goal = 'delayed';
insert into towpath.buried ({ticket}, buried_at)
select :seq, :topic, :priority, :epoch, :key,
       :retries, :crashes, :timeouts, :releases, :buries, :kicks, :now where :goal = 'buried';
insert into towpath.done ({ticket}, finished_at, prune_at, duration, cancelled)
select :seq, :topic, :priority, :epoch, :key,
       :retries, :crashes, :timeouts, :releases, :buries, :kicks,
       :now, :now + :retention, :duration, true where :goal = 'cancelled';
insert into towpath.failure (seq, epoch, failed_at, kind, error, traceback)
select :seq, :epoch, :now, :kind, :error, :traceback
 where :error is not null and :goal <> 'gone' on conflict do nothing;
insert into towpath.minute (minute, topic, completed, failed, duration)
select :now / 60000000, :topic, 0, 1, 0 where :error is not null and :goal = 'buried'
on conflict (minute, topic) do update set failed = failed + 1;
delete from towpath.failure where seq = :seq and :goal = 'gone';
delete from towpath.job where seq = :seq and :goal = 'gone';

-- name: settle [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           nth integer, seq bigint, epoch bigint, goal text, delay bigint, priority bigint,
           retried integer, crashed integer, timed_out integer, released integer,
           retention bigint, kind text, error text, traceback text)),
left_behind as (
    delete from towpath.lease l using item i
     where l.seq = any(array(select seq from item)) and l.seq = i.seq and l.epoch = i.epoch
    returning l.seq, l.topic, coalesce(i.priority, l.priority) as priority, l.epoch, l.key,
              nullif(coalesce(l.retries, 0) + i.retried, 0) as retries,
              nullif(coalesce(l.crashes, 0) + i.crashed, 0) as crashes,
              nullif(coalesce(l.timeouts, 0) + i.timed_out, 0) as timeouts,
              nullif(coalesce(l.releases, 0) + i.released, 0) as releases,
              nullif(coalesce(l.buries, 0) + (i.goal = 'buried')::integer, 0) as buries, l.kicks,
              l.reserved_at,
              case when l.cancelled and i.goal <> 'gone' then 'cancelled' else i.goal end as goal,
              i.nth, i.delay, i.retention, i.kind, i.error, i.traceback),
repriced as (
    update towpath.job j set priority = g.priority from left_behind g
     where j.seq = g.seq and j.priority <> g.priority and g.goal <> 'gone'),
unkeyed as (
    delete from towpath.unique_key k using left_behind g
     where k.topic = g.topic and k.key = g.key and g.goal in ('buried', 'cancelled', 'gone')),
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
    select {ticket}, now, now + retention, now - reserved_at, true
      from left_behind, clock where goal = 'cancelled'),
failed as (
    insert into towpath.failure (seq, epoch, failed_at, kind, error, traceback)
    select seq, epoch, now, kind, error, traceback from left_behind, clock
     where error is not null and goal <> 'gone' on conflict do nothing),
counted as (
    insert into towpath.tally (at, topic, completed, failed, duration)
    select now, topic, 0, count(*), 0 from left_behind, clock
     where error is not null and goal = 'buried' group by now, topic),
forgotten as (
    delete from towpath.failure f using left_behind g where f.seq = g.seq and g.goal = 'gone'),
deleted as (
    delete from towpath.job j using left_behind g where j.seq = g.seq and g.goal = 'gone')
select {ticket}, goal, null, nth from left_behind;

-- name: touch [sqlite]
update towpath.lease
   set until = case when session is null then :now + :ttr end,
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
   set until = case when session is null then {now} + i.ttr end,
       touches = touches + 1, touched_at = {now}
  from item i
 where l.seq = any(array(select seq from item)) and l.seq = i.seq and l.epoch = i.epoch
   and (i.max_touches is null or l.touches < i.max_touches)
   and (i.min_interval is null or {now} - coalesce(touched_at, reserved_at) >= i.min_interval)
   and (i.max_duration is null or {now} - reserved_at <= i.max_duration)
returning i.nth, l.until, l.cancelled;

-- Where a job is whose lease did not match, and whether this very try was recorded as failed.
-- name: whereabouts [sqlite]
select :nth as nth, l.state, l.epoch,
       exists (select 1 from towpath.failure f
                where f.seq = :seq and f.epoch = :epoch and f.kind = 'error'),
       t.touches, :now - coalesce(t.touched_at, t.reserved_at)
  from towpath.located l left join towpath.lease t on t.seq = l.seq where l.seq = :seq;

-- name: whereabouts [postgres]
select i.nth, w.state, w.epoch,
       exists (select 1 from towpath.failure f
                where f.seq = i.seq and f.epoch = i.epoch and f.kind = 'error'),
       w.touches, {now} - coalesce(w.touched_at, w.reserved_at)
  from json_to_recordset(cast(:items as json)) as i(nth integer, seq bigint, epoch bigint),
       lateral (select l.state, l.epoch, t.touches, t.touched_at, t.reserved_at
                  from towpath.located l left join towpath.lease t on t.seq = l.seq
                 where l.seq = i.seq limit 1) w;

-- A lease that somebody is ending at this moment is left to them.
-- name: expired [sqlite]
select l.seq, l.epoch, j.options from towpath.lease l join towpath.job j on j.seq = l.seq
 where l.topic = :topic and l.until <= :now order by l.until limit :limit;

-- name: expired [postgres]
select e.seq, e.epoch, (select j.options from towpath.job j where j.seq = e.seq)
  from json_to_recordset(cast(:items as json)) as i(topic text),
       lateral (select l.seq, l.epoch from towpath.lease l
                 where l.topic = i.topic and l.until <= {now} order by l.until
                 limit cast(:limit as bigint) for update skip locked) e;
