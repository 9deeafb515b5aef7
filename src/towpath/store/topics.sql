-- Topics.

-- Returns a row only if the topic was not paused before.
-- name: begin_pause
insert into towpath.topic as t (name, created_at, paused_until)
select :topic, {now}, coalesce({now} + cast(:duration as bigint), 4611686018427387904)
 where cast(:create as boolean) or exists (select 1 from towpath.topic where name = :topic)
on conflict (name) do update set paused_until = excluded.paused_until
 where t.paused_until <= {now}
returning paused_until;

-- name: pause
insert into towpath.topic (name, created_at, paused_until)
select :topic, {now}, coalesce({now} + cast(:duration as bigint), 4611686018427387904)
 where cast(:create as boolean) or exists (select 1 from towpath.topic where name = :topic)
on conflict (name) do update set paused_until = excluded.paused_until
returning name;

-- Returns a row only if the topic was paused.
-- name: end_pause
update towpath.topic set paused_until = 0 where name = :topic and paused_until > {now} returning name;

-- name: resume
update towpath.topic set paused_until = 0 where name = :topic returning name;

-- name: list_topics
select name from towpath.topic order by name;

-- name: limit_keys
select distinct limit_key from (
    select limit_key from (select limit_key from towpath.lease
                            where topic = :topic and limit_key is not null
                            limit cast(:limit as bigint)) as running
    union all
    select limit_key from (select limit_key from towpath.blocked
                            where topic = :topic order by seq limit cast(:limit as bigint)) as parked
    union all
    select limit_key from (select limit_key from towpath.ready
                            where topic = :topic order by priority, seq
                            limit cast(:limit as bigint)) as waiting) as known
 where limit_key is not null order by limit_key;

-- From topic to topic by the index: however many topics and jobs there are, only those of which
-- something is delayed or reserved are looked at.
-- name: due_topics
with recursive later(topic) as (
    select min(topic) from towpath.delayed
    union all
    select (select min(d.topic) from towpath.delayed d where d.topic > later.topic) from later
     where later.topic is not null),
held(topic) as (
    select min(topic) from towpath.lease where until is not null
    union all
    select (select min(l.topic) from towpath.lease l where l.until is not null and l.topic > held.topic)
      from held where held.topic is not null)
select topic from later where exists (
       select 1 from towpath.delayed d where d.topic = later.topic and d.run_at <= {now})
 union
select topic from held where exists (
       select 1 from towpath.lease l where l.topic = held.topic and l.until <= {now});

-- A topic is forgotten only while nothing of it is stored, it is not paused and not marked as limited.
-- PostgreSQL does not see a job that another transaction has not committed yet; its topic is put back
-- the next time. A row that another transaction holds is left for then.
-- name: forget_empty_topics [sqlite]
delete from towpath.topic
 where paused_until <= :now and not limited
   and not exists (select 1 from towpath.ready r where r.topic = towpath.topic.name)
   and not exists (select 1 from towpath.delayed d where d.topic = towpath.topic.name)
   and not exists (select 1 from towpath.blocked b where b.topic = towpath.topic.name)
   and not exists (select 1 from towpath.buried b where b.topic = towpath.topic.name)
   and not exists (select 1 from towpath.offer o where o.topic = towpath.topic.name)
   and name not in (select topic from towpath.lease)
   and name not in (select topic from towpath.done)
returning name;

-- name: forget_empty_topics [postgres]
with used as materialized (
    select topic from towpath.ready union select topic from towpath.delayed
     union select topic from towpath.blocked union select topic from towpath.lease union select topic from towpath.buried
     union select topic from towpath.offer union select topic from towpath.done),
put_back as (
    insert into towpath.topic (name, created_at, limited)
    select u.topic, {now}, true from used u -- limited or not: that costs little, and is never wrong
     where not exists (select from towpath.topic t where t.name = u.topic)
     order by u.topic
    on conflict do nothing)
delete from towpath.topic where name = any(array(
    select t.name from towpath.topic t
     where t.paused_until <= {now} and not t.limited
       and not exists (select from used u where u.topic = t.name)
       for update skip locked))
returning name;
