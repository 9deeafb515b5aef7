-- What a door of delay queues asks beyond the verbs of jobs.

-- What is due counts as ready, whether or not it was moved yet.
-- name: counts
select t.name as topic,
       (select count(*) from towpath.ready r where r.topic = t.name)
         + (select count(*) from towpath.delayed d where d.topic = t.name and d.run_at <= {now})
         + (select count(*) from towpath.lease l where l.topic = t.name and l.until <= {now}) as ready,
       (select count(*) from towpath.ready r where r.topic = t.name and r.priority < cast(:urgent as bigint))
         + (select count(*) from towpath.delayed d
             where d.topic = t.name and d.run_at <= {now} and d.priority < cast(:urgent as bigint))
         + (select count(*) from towpath.lease l
             where l.topic = t.name and l.until <= {now} and l.priority < cast(:urgent as bigint)) as urgent,
       (select count(*) from towpath.delayed d where d.topic = t.name and d.run_at > {now})
         + (select count(*) from towpath.blocked w where w.topic = t.name) as delayed,
       coalesce(h.held, 0) as reserved,
       (select count(*) from towpath.buried b where b.topic = t.name) as buried,
       t.paused_until - {now} as pause
  from towpath.topic t
  left join (select topic, count(*) as held from towpath.lease
              where until is null or until > {now} group by topic) h on h.topic = t.name
 where cast(:topic as text) is null or t.name = :topic
 order by t.name;

-- name: look
select {now} as now, {located l} from towpath.located l where l.seq = :seq;

-- name: is_awaited
select 1 from towpath.buried where seq = :seq and awaited;

-- name: lease
insert into towpath.lease ({ticket}, reserved_at, token, session, until)
values ({ticket :}, {now}, :token, cast(:session as bigint), {now} + cast(:ttr as bigint));
