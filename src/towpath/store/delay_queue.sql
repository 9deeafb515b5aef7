-- What a door of delay queues asks beyond the verbs of jobs.

-- What is due counts as ready, whether or not somebody has moved it yet.
-- name: counts
select t.name,
       (select count(*) from towpath.ready r where r.topic = t.name)
         + (select count(*) from towpath.delayed d where d.topic = t.name and d.run_at <= {now})
         + (select count(*) from towpath.lease l where l.topic = t.name and l.until <= {now}),
       (select count(*) from towpath.ready r where r.topic = t.name and r.priority < cast(:urgent as bigint))
         + (select count(*) from towpath.delayed d
             where d.topic = t.name and d.run_at <= {now} and d.priority < cast(:urgent as bigint))
         + (select count(*) from towpath.lease l
             where l.topic = t.name and l.until <= {now} and l.priority < cast(:urgent as bigint)),
       (select count(*) from towpath.delayed d where d.topic = t.name and d.run_at > {now})
         + (select count(*) from towpath.blocked w where w.topic = t.name),
       coalesce(h.held, 0),
       (select count(*) from towpath.buried b where b.topic = t.name),
       t.paused_until - {now}
  from towpath.topic t
  left join (select topic, count(*) as held from towpath.lease
              where until is null or until > {now} group by topic) h on h.topic = t.name
 where cast(:topic as text) is null or t.name = :topic
 order by t.name;

-- name: look
select l.*, {now} from towpath.located l where l.seq = :seq;

-- name: lease
insert into towpath.lease ({ticket}, reserved_at, token, session, until)
values ({ticket :}, {now}, :token, cast(:session as bigint), {now} + cast(:ttr as bigint));
