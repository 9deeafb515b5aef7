-- Topics.

-- name: pause
insert into towpath.topic (name, created_at, paused_until)
values (:topic, {now}, coalesce({now} + cast(:duration as bigint), 4611686018427387904))
on conflict (name) do update set paused_until = excluded.paused_until;

-- name: resume
update towpath.topic set paused_until = 0 where name = :topic returning name;

-- name: list_topics
select name from towpath.topic order by name;

-- A topic is forgotten only while nothing of it is stored and it is not paused.
-- name: forget_empty_topics
delete from towpath.topic
 where paused_until <= {now}
   and not exists (select 1 from towpath.job j where j.topic = towpath.topic.name)
returning name;
