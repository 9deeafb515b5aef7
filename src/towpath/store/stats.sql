-- Live tables are counted; what has finished comes from the tally, whose size does not grow with it.

-- name: by_topic
select t.name,
       (select count(*) from towpath.ready r where r.topic = t.name),
       (select count(*) from towpath.delayed d where d.topic = t.name),
       coalesce(l.leases, 0),
       (select count(*) from towpath.buried b where b.topic = t.name),
       t.paused_until > {now},
       coalesce(o.completed, 0), coalesce(o.failed, 0), coalesce(o.duration, 0)
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

-- name: count_cancelled
select count(*) from towpath.done where cancelled;

-- name: throughput
select minute, sum(completed), sum(failed), sum(duration) from (
    select minute, completed, failed, duration from towpath.minute
     where minute >= {now} / 60000000 - cast(:minutes as bigint)
       and (cast(:topic as text) is null or topic = :topic)
    union all
    select at / 60000000, completed, failed, duration from towpath.tally
     where at >= {now} - cast(:minutes as bigint) * 60000000
       and (cast(:topic as text) is null or topic = :topic)) as counted
 group by minute order by minute;

-- name: roll_up [sqlite]
select 1 where false;

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
