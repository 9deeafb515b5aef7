-- Live tables are counted; what has finished comes from the tally, whose size does not grow with it.

-- name: by_topic
select t.name as topic,
       (select count(*) from towpath.ready r where r.topic = t.name) as ready,
       (select count(*) from towpath.delayed d where d.topic = t.name) as delayed,
       (select count(*) from towpath.blocked w where w.topic = t.name) as blocked,
       coalesce(l.leases, 0) as reserved,
       (select count(*) from towpath.buried b where b.topic = t.name) as buried,
       t.paused_until > {now} as paused,
       coalesce(o.completed, 0) as completed, coalesce(o.failed, 0) as failed,
       coalesce(o.duration, 0) as duration,
       coalesce(o.retried, 0) as retried, coalesce(o.crashed, 0) as crashed
  from towpath.topic t
  left join (select topic, count(*) as leases from towpath.lease group by topic) l
    on l.topic = t.name
  left join (select topic, sum(completed) as completed, sum(failed) as failed,
                    sum(duration) as duration, sum(retried) as retried, sum(crashed) as crashed
               from (select topic, completed, failed, duration, retried, crashed
                       from towpath.minute
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
select count(*) from towpath.done where cancelled;

-- name: throughput
select minute, sum(completed) as completed, sum(failed) as failed, sum(duration) as duration from (
    select minute, completed, failed, duration from towpath.minute
     where minute >= {now} / 60000000 - cast(:minutes as bigint)
       and (cast(:topic as text) is null or topic = :topic)
    union all
    select at / 60000000, completed, failed, duration from towpath.tally
     where at >= {now} - cast(:minutes as bigint) * 60000000
       and (cast(:topic as text) is null or topic = :topic)
    union all
    select minute, completed, 0, duration from towpath.histogram
     where minute > 0 and minute >= {now} / 60000000 - cast(:minutes as bigint)
       and (cast(:topic as text) is null or topic = :topic)) as counted
 group by minute having sum(completed) + sum(failed) > 0 order by minute;

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

-- The sum of a topic's old minutes is its minute 0.
-- name: sum_up [sqlite]
delete from towpath.minute where (minute, topic) in (
    select minute, topic from towpath.minute
     where minute > 0 and minute < :now / 60000000 - :kept order by minute, topic limit :limit)
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
    select minute, topic from towpath.minute
     where minute > 0 and minute < {now} / 60000000 - cast(:kept as bigint)
     order by minute, topic limit cast(:limit as bigint) for update skip locked),
gone as (
    delete from towpath.minute m using picked p
     where m.minute = p.minute and m.topic = p.topic returning m.*),
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
