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
       coalesce(o.duration, 0) as duration
  from towpath.topic t
  left join (select topic, count(*) as leases from towpath.lease group by topic) l
    on l.topic = t.name
  left join (select topic, sum(completed) as completed, sum(failed) as failed,
                    sum(duration) as duration
               from (select topic, completed, failed, duration from towpath.minute
                     union all
                     select topic, completed, failed, duration from towpath.tally) as counted
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
       and (cast(:topic as text) is null or topic = :topic)) as counted
 group by minute order by minute;

-- name: roll_up [postgres]
with gone as (
    delete from towpath.tally where at < ({now} / 60000000) * 60000000 returning *)
insert into towpath.minute (minute, topic, completed, failed, duration)
select at / 60000000, topic, sum(completed), sum(failed), sum(duration) from gone
 group by at / 60000000, topic
on conflict (minute, topic) do update
   set completed = minute.completed + excluded.completed,
       failed = minute.failed + excluded.failed,
       duration = minute.duration + excluded.duration;

-- The sum of a topic's old minutes is its minute 0.
-- name: sum_up [sqlite]
delete from towpath.minute where (minute, topic) in (
    select minute, topic from towpath.minute
     where minute > 0 and minute < :now / 60000000 - :kept order by minute, topic limit :limit)
returning minute, topic, completed, failed, duration;
insert into towpath.minute (minute, topic, completed, failed, duration)
select 0, @topic, @completed, @failed, @duration
 where exists (select 1 from towpath.topic where name = @topic)
on conflict (minute, topic) do update
   set completed = completed + excluded.completed,
       failed = failed + excluded.failed,
       duration = duration + excluded.duration;
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
    insert into towpath.minute (minute, topic, completed, failed, duration)
    select 0, topic, sum(completed), sum(failed), sum(duration) from gone
     where topic in (select name from towpath.topic)
     group by topic order by topic
    on conflict (minute, topic) do update
       set completed = minute.completed + excluded.completed,
           failed = minute.failed + excluded.failed,
           duration = minute.duration + excluded.duration)
select minute from gone;
