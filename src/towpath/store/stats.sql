-- Live tables are counted; what has finished comes from the tally, whose size does not grow with it.

-- Each count ends at :most rows. A range of one name, in the order of the index: else PostgreSQL
-- would read a whole table for each topic, if most of its rows are of one.
-- name: by_topic
select t.name as topic,
       (select count(*) from (select 1 from towpath.ready r where r.topic between t.name and t.name
                               order by r.topic, r.priority, r.seq limit cast(:most as bigint)) as c) as ready,
       (select count(*) from (select 1 from towpath.delayed d where d.topic between t.name and t.name
                               order by d.topic, d.run_at, d.seq limit cast(:most as bigint)) as c) as delayed,
       (select count(*) from (select 1 from towpath.blocked w where w.topic between t.name and t.name
                               order by w.topic, w.seq limit cast(:most as bigint)) as c) as blocked,
       coalesce(l.leases, 0) as reserved,
       (select count(*) from (select 1 from towpath.buried b where b.topic between t.name and t.name
                               order by b.topic, b.no limit cast(:most as bigint)) as c) as buried,
       t.paused_until > {now} as paused, t.paused_until,
       coalesce(o.completed, 0) as completed, coalesce(o.failed, 0) as failed,
       coalesce(o.duration, 0) as duration,
       coalesce(o.retried, 0) as retried, coalesce(o.crashed, 0) as crashed
  from towpath.topic t
  left join (select topic, count(*) as leases from (
                 select topic from towpath.lease limit cast(:most_leases as bigint)) as c
              group by topic) l on l.topic = t.name
  left join (select topic, sum(completed) as completed, sum(failed) as failed,
                    sum(duration) as duration, sum(retried) as retried, sum(crashed) as crashed
               from (select topic, completed, failed, duration, retried, crashed
                       from towpath.minute
                     union all
                     select topic, completed, failed, duration, retried, crashed
                       from towpath.period
                     union all
                     select topic, completed, failed, duration, retried, crashed
                       from towpath.tally
                     union all
                     select topic, completed, 0, duration, 0, 0
                       from towpath.histogram where minute > 0) as counted
              where cast(:topic as text) is null or topic = :topic
              group by topic) o on o.topic = t.name
 where cast(:topic as text) is null or t.name = :topic
 order by t.name;

-- The first of each priority, found by the key: there may be millions behind it.
-- name: oldest_ready
with recursive line (topic, priority) as (
    select t.name, (select min(r.priority) from towpath.ready r where r.topic = t.name)
      from towpath.topic t where cast(:topic as text) is null or t.name = :topic
    union all
    select l.topic, (select min(r.priority) from towpath.ready r
                      where r.topic = l.topic and r.priority > l.priority)
      from line l where l.priority is not null)
select l.topic, min((select j.run_at from towpath.job j where j.seq = (
           select min(r.seq) from towpath.ready r
            where r.topic = l.topic and r.priority = l.priority))) as run_at
  from line l where l.priority is not null group by l.topic;

-- name: count_cancelled
select count(*) from (
    select 1 from towpath.done where cancelled limit cast(:most as bigint)) as found;

-- name: count_topics
select count(*) from towpath.topic;

-- Steps of :width minutes from :first on. Old outcomes are known by the hour or by the day, and
-- count in the step in which these begin. An empty topic stands for all.
-- name: outcomes
select (minute / cast(:width as bigint)) * cast(:width as bigint) as minute,
       case when cast(:by_topic as boolean) then topic else '' end as topic,
       sum(completed) as completed, sum(failed) as failed, sum(duration) as duration from (
    select minute, topic, completed, failed, duration from towpath.minute
     where minute > 0 and minute >= cast(:first as bigint)
       and (cast(:topic as text) is null or topic = :topic)
    union all
    select minute, topic, completed, failed, duration from towpath.period
     where step in (60, 1440) and minute > cast(:first as bigint) - 60
       and (cast(:topic as text) is null or topic = :topic)
    union all
    select at / 60000000, topic, completed, failed, duration from towpath.tally
     where at >= cast(:first as bigint) * 60000000
       and (cast(:topic as text) is null or topic = :topic)
    union all
    select minute, topic, completed, 0, duration from towpath.histogram
     where minute > 0 and minute >= cast(:first as bigint)
       and (cast(:topic as text) is null or topic = :topic)) as counted
 group by 1, 2 having sum(completed) + sum(failed) > 0 order by 1, 2;

-- name: depths
select minute, topic, ready, oldest from towpath.depth
 where minute >= cast(:first as bigint) and topic = '' order by minute;

-- With a limit it is one step into the key for each item.
-- name: depths_in [sqlite]
select minute, topic, ready, oldest from towpath.depth
 where minute = :minute and (cast(:topic as text) is null or topic = :topic);

-- name: depths_in [postgres]
select d.minute, d.topic, d.ready, d.oldest
  from json_to_recordset(cast(:items as json)) as i(minute bigint), lateral (
       select * from towpath.depth x
        where x.minute = i.minute and (cast(:topic as text) is null or x.topic = :topic)
        limit 100000) d;

-- name: noted_depth
select minute from towpath.depth where minute = {now} / 60000000 and topic = '';

-- name: count_ready
select t.name as topic, (select count(*) from towpath.ready r where r.topic = t.name) as ready
  from towpath.topic t;

-- name: note_depths [sqlite]
insert into towpath.depth (minute, ready, oldest, topic)
values (:now / 60000000, :ready, :oldest, :topic) on conflict (minute, topic) do nothing;

-- name: note_depths [postgres]
insert into towpath.depth (minute, ready, oldest, topic)
select {now} / 60000000, i.ready, i.oldest, i.topic
  from json_to_recordset(cast(:items as json)) as i(ready bigint, oldest bigint, topic text)
on conflict (minute, topic) do nothing;

-- name: forget_depths
delete from towpath.depth where (minute, topic) in (
    select minute, topic from towpath.depth
     where minute < {now} / 60000000 - cast(:kept as bigint) order by minute limit cast(:limit as bigint))
returning minute;

-- name: now
select {now} as now;

-- name: histograms
select topic, run_bucket, wait_bucket, sum(completed) as completed, sum(duration) as duration,
       sum(waited) as waited from (
    select topic, run_bucket, wait_bucket, completed, duration, waited from towpath.histogram
    union all
    select topic, run_bucket, wait_bucket, completed, duration, waited from towpath.tally
     where run_bucket > 0) as counted
 where topic in (select name from towpath.topic)
 group by topic, run_bucket, wait_bucket order by topic, run_bucket, wait_bucket;

-- name: forget_histograms
delete from towpath.histogram where topic not in (select name from towpath.topic);

-- name: roll_up [sqlite]
delete from towpath.histogram where minute > 0 and minute < :now / 60000000
returning minute, topic, run_bucket, wait_bucket, completed, duration, waited;
insert into towpath.histogram (minute, topic, run_bucket, wait_bucket, completed, duration, waited)
select 0, @topic, @run_bucket, @wait_bucket, @completed, @duration, @waited where true
on conflict (minute, topic, run_bucket, wait_bucket) do update
   set completed = completed + excluded.completed, duration = duration + excluded.duration,
       waited = waited + excluded.waited;
insert into towpath.minute (minute, topic, completed, failed, duration)
select @minute, @topic, @completed, 0, @duration where true
on conflict (minute, topic) do update
   set completed = completed + excluded.completed, duration = duration + excluded.duration;

-- name: roll_up [postgres]
with gone as (
    delete from towpath.tally where at < ({now} / 60000000) * 60000000 returning *),
measured as (
    insert into towpath.histogram (minute, topic, run_bucket, wait_bucket, completed, duration, waited)
    select 0, topic, run_bucket, wait_bucket, sum(completed), sum(duration), sum(waited) from gone
     where run_bucket > 0 group by 2, 3, 4 order by 2, 3, 4
    on conflict (minute, topic, run_bucket, wait_bucket) do update
       set completed = histogram.completed + excluded.completed,
           duration = histogram.duration + excluded.duration,
           waited = histogram.waited + excluded.waited)
insert into towpath.minute (minute, topic, completed, failed, duration, retried, crashed)
select at / 60000000, topic, sum(completed), sum(failed), sum(duration), sum(retried), sum(crashed)
  from gone group by 1, 2 order by 1, 2
on conflict (minute, topic) do update
   set completed = minute.completed + excluded.completed,
       failed = minute.failed + excluded.failed,
       duration = minute.duration + excluded.duration,
       retried = minute.retried + excluded.retried,
       crashed = minute.crashed + excluded.crashed;

-- Minutes become hours, hours become days: each time whole ones. A day that is too old to be asked
-- for becomes part of its topic's sum, which is minute 0.
-- name: fold_minutes [sqlite]
delete from towpath.minute where (minute, topic) in (
    select minute, topic from towpath.minute
     where minute > 0 and minute < (:now / 60000000 - :kept) / 60 * 60
     order by minute, topic limit :limit)
returning minute, topic, completed, failed, duration, retried, crashed;
insert into towpath.period (step, minute, topic, completed, failed, duration, retried, crashed)
select 60, @minute / 60 * 60, @topic, @completed, @failed, @duration, @retried, @crashed where true
on conflict (step, minute, topic) do update
   set completed = completed + excluded.completed,
       failed = failed + excluded.failed,
       duration = duration + excluded.duration,
       retried = retried + excluded.retried,
       crashed = crashed + excluded.crashed;
select @minute;

-- name: fold_minutes [postgres]
with picked as materialized (
    select minute, topic from towpath.minute
     where minute > 0 and minute < ({now} / 60000000 - cast(:kept as bigint)) / 60 * 60
     order by minute, topic limit cast(:limit as bigint) for update skip locked),
gone as (
    delete from towpath.minute m using picked p
     where m.minute = p.minute and m.topic = p.topic returning m.*),
folded as (
    insert into towpath.period (step, minute, topic, completed, failed, duration, retried, crashed)
    select 60, minute / 60 * 60, topic, sum(completed), sum(failed), sum(duration), sum(retried),
           sum(crashed)
      from gone group by 2, 3 order by 2, 3
    on conflict (step, minute, topic) do update
       set completed = period.completed + excluded.completed,
           failed = period.failed + excluded.failed,
           duration = period.duration + excluded.duration,
           retried = period.retried + excluded.retried,
           crashed = period.crashed + excluded.crashed)
select minute from gone;

-- name: fold_hours [sqlite]
delete from towpath.period where (step, minute, topic) in (
    select step, minute, topic from towpath.period
     where step = 60 and minute < (:now / 60000000 - :kept) / 1440 * 1440
     order by minute, topic limit :limit)
returning minute, topic, completed, failed, duration, retried, crashed;
insert into towpath.period (step, minute, topic, completed, failed, duration, retried, crashed)
select 1440, @minute / 1440 * 1440, @topic, @completed, @failed, @duration, @retried, @crashed where true
on conflict (step, minute, topic) do update
   set completed = completed + excluded.completed,
       failed = failed + excluded.failed,
       duration = duration + excluded.duration,
       retried = retried + excluded.retried,
       crashed = crashed + excluded.crashed;
select @minute;

-- name: fold_hours [postgres]
with picked as materialized (
    select minute, topic from towpath.period
     where step = 60 and minute < ({now} / 60000000 - cast(:kept as bigint)) / 1440 * 1440
     order by minute, topic limit cast(:limit as bigint) for update skip locked),
gone as (
    delete from towpath.period m using picked p
     where m.step = 60 and m.minute = p.minute and m.topic = p.topic returning m.*),
folded as (
    insert into towpath.period (step, minute, topic, completed, failed, duration, retried, crashed)
    select 1440, minute / 1440 * 1440, topic, sum(completed), sum(failed), sum(duration), sum(retried),
           sum(crashed)
      from gone group by 2, 3 order by 2, 3
    on conflict (step, minute, topic) do update
       set completed = period.completed + excluded.completed,
           failed = period.failed + excluded.failed,
           duration = period.duration + excluded.duration,
           retried = period.retried + excluded.retried,
           crashed = period.crashed + excluded.crashed)
select minute from gone;

-- name: sum_up [sqlite]
delete from towpath.period where (step, minute, topic) in (
    select step, minute, topic from towpath.period
     where step = 1440 and minute < :now / 60000000 - :kept order by minute, topic limit :limit)
returning minute, topic, completed, failed, duration, retried, crashed;
insert into towpath.minute (minute, topic, completed, failed, duration, retried, crashed)
select 0, @topic, @completed, @failed, @duration, @retried, @crashed
 where exists (select 1 from towpath.topic where name = @topic)
on conflict (minute, topic) do update
   set completed = completed + excluded.completed,
       failed = failed + excluded.failed,
       duration = duration + excluded.duration,
       retried = retried + excluded.retried,
       crashed = crashed + excluded.crashed;
select @minute;

-- name: sum_up [postgres]
with picked as materialized (
    select minute, topic from towpath.period
     where step = 1440 and minute < {now} / 60000000 - cast(:kept as bigint)
     order by minute, topic limit cast(:limit as bigint) for update skip locked),
gone as (
    delete from towpath.period m using picked p
     where m.step = 1440 and m.minute = p.minute and m.topic = p.topic returning m.*),
summed as (
    insert into towpath.minute (minute, topic, completed, failed, duration, retried, crashed)
    select 0, topic, sum(completed), sum(failed), sum(duration), sum(retried), sum(crashed) from gone
     where topic in (select name from towpath.topic)
     group by topic order by topic
    on conflict (minute, topic) do update
       set completed = minute.completed + excluded.completed,
           failed = minute.failed + excluded.failed,
           duration = minute.duration + excluded.duration,
           retried = minute.retried + excluded.retried,
           crashed = minute.crashed + excluded.crashed)
select minute from gone;
