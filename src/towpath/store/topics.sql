-- Topics.

-- name: pause
insert into towpath.topic (name, created_at, paused_until)
values (:topic, {now}, coalesce({now} + cast(:duration as bigint), 4611686018427387904))
on conflict (name) do update set paused_until = excluded.paused_until;

-- name: resume
update towpath.topic set paused_until = 0 where name = :topic returning name;

-- name: list_topics
select name from towpath.topic order by name;

-- A topic is forgotten only while nothing of it is stored and it is not paused. PostgreSQL does not
-- see a job that another transaction has not committed yet; its topic is put back the next time.
-- name: forget_empty_topics [sqlite]
delete from towpath.topic
 where paused_until <= :now
   and not exists (select 1 from towpath.job j where j.topic = towpath.topic.name)
returning name;

-- name: forget_empty_topics [postgres]
with used as materialized (
    select topic from towpath.ready union select topic from towpath.delayed
     union select topic from towpath.blocked union select topic from towpath.lease union select topic from towpath.buried
     union select topic from towpath.done),
put_back as (
    insert into towpath.topic (name, created_at) select topic, {now} from used
     where topic not in (select name from towpath.topic)
     order by topic
    on conflict do nothing)
delete from towpath.topic
 where paused_until <= {now} and name not in (select topic from used)
returning name;
