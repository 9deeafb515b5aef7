-- Storing jobs. Each PostgreSQL chain of CTEs stands beside the SQLite chain of statements that
-- does the same; what needs no chain is written once.

-- The first job with a limit marks its topic, even if the job itself is not stored, as another job may
-- take over its limit. PostgreSQL leaves the mark where it would have to wait for a lock or risk a
-- serialization error: a reservation that meets a limit in a topic without the mark sets it.
-- SQLite writes before it reads: a caller's transaction that has only read cannot write after another
-- writer.
-- name: enqueue_one [sqlite]
insert into towpath.topic (name, created_at, limited) values (:topic, :now, :limit_key is not null)
on conflict (name) do update set limited = true where excluded.limited and not limited;
insert into towpath.job
       (id, topic, priority, limit_key, payload, encoding, ttr, options, created_at, run_at)
values (:id, :topic, :priority, :limit_key, :payload, :encoding, :ttr, :options, :now, :now)
on conflict do nothing;
select last_insert_rowid() as seq, :now as created_at, :now as run_at, null as id where changes() > 0;
insert into towpath.ready (seq, topic, priority, limit_key)
values (@seq, :topic, :priority, :limit_key);

-- name: enqueue_one [postgres]
with clock as materialized (select {now} as now),
opened as (
    insert into towpath.topic (name, created_at, limited)
    select cast(:topic as text), now, cast(:limit_key as text) is not null from clock
     where not exists (select from towpath.topic where name = :topic)
    on conflict do nothing),
marked as (
    update towpath.topic set limited = true
     where cast(:limit_key as text) is not null and name = (
        select t.name from towpath.topic t
         where t.name = :topic and not t.limited
           and current_setting('transaction_isolation') = 'read committed'
           for update skip locked)),
made as (
    insert into towpath.job
           (id, topic, priority, limit_key, payload, encoding, ttr, options, created_at, run_at)
    select cast(:id as uuid), :topic, cast(:priority as bigint), cast(:limit_key as text),
           cast(:payload as text), cast(:encoding as text), cast(:ttr as bigint),
           cast(:options as text), now, now
      from clock
    on conflict (id) do nothing
    returning seq, id, topic, priority, limit_key, created_at, run_at),
readied as (
    insert into towpath.ready (seq, topic, priority, limit_key)
    select seq, topic, priority, limit_key from made)
select seq, created_at, run_at, id from made;

-- Numbers only grow, and one transaction writes at a time: what is above `before` was stored just now.
-- name: enqueue [sqlite]
/* each */
insert into towpath.topic (name, created_at, limited) values (:topic, :now, :limit_key is not null)
on conflict (name) do update set limited = true where excluded.limited and not limited;
select coalesce(max(seq), 0) as before from towpath.job;
/* each */
insert into towpath.job
       (id, topic, priority, limit_key, payload, encoding, ttr, options, created_at, run_at)
values (:id, :topic, :priority, :limit_key, :payload, :encoding, :ttr, :options, :now,
        coalesce(:run_at, :now + :delay))
on conflict do nothing;
insert into towpath.ready (seq, topic, priority, limit_key)
select seq, topic, priority, limit_key from towpath.job where seq > @before and run_at <= :now;
insert into towpath.delayed (seq, topic, priority, limit_key, run_at)
select seq, topic, priority, limit_key, run_at from towpath.job where seq > @before and run_at > :now;
select seq, created_at, run_at, id from towpath.job where seq > @before order by seq;

-- name: enqueue [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select i.*, coalesce(i.run_at, clock.now + i.delay) as due_at, clock.now
      from clock, json_to_recordset(cast(:items as json)) as i(
           nth integer, id uuid, topic text, priority bigint, limit_key text, payload text,
           encoding text, ttr bigint, options text, run_at bigint, delay bigint)),
opened as (
    insert into towpath.topic (name, created_at, limited)
    select distinct on (topic collate "C") topic, now, limit_key is not null from item
     where not exists (select from towpath.topic t where t.name = item.topic)
     order by topic collate "C", limit_key
    on conflict do nothing),
marked as (
    update towpath.topic set limited = true
     where exists (select from item where limit_key is not null) and name = any(array(
        select t.name from towpath.topic t
         where t.name = any(array(select topic from item where limit_key is not null))
           and not t.limited and current_setting('transaction_isolation') = 'read committed'
         order by t.name collate "C" for update skip locked))),
made as (
    insert into towpath.job
           (id, topic, priority, limit_key, payload, encoding, ttr, options, created_at, run_at)
    select id, topic, priority, limit_key, payload, encoding, ttr, options, now, due_at
      from item order by nth
    on conflict (id) do nothing
    returning seq, id, topic, priority, limit_key, created_at, run_at),
readied as (
    insert into towpath.ready (seq, topic, priority, limit_key)
    select seq, topic, priority, limit_key from made where run_at <= created_at),
postponed as (
    insert into towpath.delayed (seq, topic, priority, limit_key, run_at)
    select seq, topic, priority, limit_key, run_at from made where run_at > created_at)
select seq, created_at, run_at,
       case when (select count(*) from made) < (select count(*) from item) then id end as id
  from made order by seq;

-- Claims the key first, for the id that the job will have, and then makes the job.
-- name: enqueue_keyed [sqlite]
insert into towpath.topic (name, created_at, limited) values (:topic, :now, :limit_key is not null)
on conflict (name) do update set limited = true where excluded.limited and not limited;
insert into towpath.unique_key (topic, key, id) select :topic, :key, :id
 where not exists (select 1 from towpath.job where id = :id)
on conflict do nothing
returning id as claimed;
insert into towpath.job
       (id, topic, priority, key, limit_key, payload, encoding, ttr, options, created_at, run_at)
values (@claimed, :topic, :priority, :key, :limit_key, :payload, :encoding, :ttr, :options, :now,
        coalesce(:run_at, :now + :delay))
returning seq, created_at, run_at, id;
insert into towpath.ready (seq, topic, priority, key, limit_key)
select @seq, :topic, :priority, :key, :limit_key where @run_at <= :now;
insert into towpath.delayed (seq, topic, priority, key, limit_key, run_at)
select @seq, :topic, :priority, :key, :limit_key, @run_at where @run_at > :now;

-- name: enqueue_keyed [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select i.*, coalesce(i.run_at, clock.now + i.delay) as due_at, clock.now
      from clock, json_to_recordset(cast(:items as json)) as i(
           nth integer, id uuid, topic text, priority bigint, key text, limit_key text,
           payload text, encoding text, ttr bigint, options text, run_at bigint, delay bigint)),
opened as (
    insert into towpath.topic (name, created_at, limited)
    select distinct on (topic collate "C") topic, now, limit_key is not null from item
     where not exists (select from towpath.topic t where t.name = item.topic)
     order by topic collate "C", limit_key
    on conflict do nothing),
marked as (
    update towpath.topic set limited = true
     where exists (select from item where limit_key is not null) and name = any(array(
        select t.name from towpath.topic t
         where t.name = any(array(select topic from item where limit_key is not null))
           and not t.limited and current_setting('transaction_isolation') = 'read committed'
         order by t.name collate "C" for update skip locked))),
claimed as (
    insert into towpath.unique_key (topic, key, id)
    select topic, key, id from (select distinct on (id) * from item order by id, nth) as first
     where not exists (select from towpath.job j where j.id = first.id)
     order by topic collate "C", key collate "C"
    on conflict do nothing
    returning id),
made as (
    insert into towpath.job
           (id, topic, priority, key, limit_key, payload, encoding, ttr, options, created_at, run_at)
    select id, topic, priority, key, limit_key, payload, encoding, ttr, options, now, due_at
      from item where id in (select id from claimed) order by nth
    on conflict (id) do nothing
    returning seq, id, topic, priority, key, limit_key, created_at, run_at),
readied as (
    insert into towpath.ready (seq, topic, priority, key, limit_key)
    select seq, topic, priority, key, limit_key from made where run_at <= created_at),
postponed as (
    insert into towpath.delayed (seq, topic, priority, key, limit_key, run_at)
    select seq, topic, priority, key, limit_key, run_at from made where run_at > created_at)
select seq, created_at, run_at,
       case when (select count(*) from made) < (select count(*) from item) then id end as id
  from made order by seq;

-- What kept an item from being stored: its id, or its key.
-- name: standing [sqlite]
select :nth as nth, {located l} from towpath.located l
 where l.id = coalesce((select id from towpath.job where id = :id),
                       (select id from towpath.unique_key where topic = :topic and key = :key));

-- name: standing [postgres]
select i.nth, {located s} from json_to_recordset(cast(:items as json)) as i(
           nth integer, id uuid, topic text, key text),
       lateral (select l.* from towpath.located l
                 where l.id = coalesce((select j.id from towpath.job j where j.id = i.id),
                                       (select k.id from towpath.unique_key k
                                         where k.topic = i.topic and k.key = i.key)) limit 1) s;

-- An expired job loses its key but stays in line until its turn comes. It is changed only where it was
-- seen: a job that has moved may have begun, or its key may belong to another job.
-- name: let_go [sqlite]
update towpath.ready set key = null where topic = :topic and priority = :priority and seq = :seq;
update towpath.delayed set key = null where seq = :seq;
update towpath.blocked set key = null where seq = :seq;
delete from towpath.unique_key where topic = :topic and key = :key and id = :id;

-- name: let_go [postgres]
with readied as (
    update towpath.ready set key = null
     where topic = :topic and priority = :priority and seq = :seq returning seq),
postponed as (
    update towpath.delayed set key = null where seq = :seq returning seq),
parked as (
    update towpath.blocked set key = null where seq = :seq returning seq)
delete from towpath.unique_key where topic = :topic and key = :key and id = :id
   and exists (select from readied union all select from postponed union all select from parked);

-- name: clock
select {now};

-- Frees keys whose jobs have finished or were never made.
-- name: free_stale_keys [sqlite]
delete from towpath.unique_key as k where k.topic = :topic and k.key = :key and not exists (
    select 1 from towpath.located l where l.id = k.id and l.topic = k.topic and l.key = k.key
       and l.state in ('ready', 'delayed', 'blocked', 'reserved'));

-- name: free_stale_keys [postgres]
delete from towpath.unique_key k
 using json_to_recordset(cast(:items as json)) as i(topic text, key text)
 where k.topic = i.topic and k.key = i.key and not exists (
    select from towpath.located l where l.id = k.id and l.topic = k.topic and l.key = k.key
       and l.state in ('ready', 'delayed', 'blocked', 'reserved'));

-- With a limit on topics or jobs, enqueues of one topic take turns.
-- name: lock_topics [postgres]
lock table towpath.topic in share row exclusive mode;

-- name: count_topics
select count(*) from towpath.topic;

-- name: topic_exists
select 1 from towpath.topic where name = :topic;

-- Each part has the order of an index, so that PostgreSQL reads this index and never a whole table. With
-- `=` instead of `between` it might read the primary key, which has the same order but is not by topic.
-- name: count_unfinished
select count(*) from (
    select 1 as one from (select 1 from towpath.ready where topic = :topic
                           order by priority, seq limit :most) as found_r
    union all
    select 1 from (select 1 from towpath.delayed where topic = :topic
                    order by run_at, seq limit :most) as found_d
    union all
    select 1 from (select 1 from towpath.blocked where topic = :topic
                    order by seq limit :most) as found_w
    union all
    select 1 from (select 1 from towpath.buried where topic between :topic and :topic
                    order by topic, no limit :most) as found_b
    union all
    select 1 from (select 1 from towpath.lease where topic = :topic and until is not null
                    order by until limit :most) as found_e
    union all
    select 1 from (select 1 from towpath.lease
                    where topic between :topic and :topic and until is null
                    order by topic, seq limit :most) as found_s
     limit :most) as found;
