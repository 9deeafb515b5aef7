-- Bulk acts: one verb for many jobs, some at a time.

-- name: newest
select coalesce(max(seq), 0) as seq from towpath.job;

-- The next jobs by number: a window of each table of the wanted states, up to the number that every
-- window has reached, and which of them fit. So much is looked at and no more, whatever the filter
-- finds. The key of ready jobs is not in the order of numbers: few are all looked at, of many it is
-- one step into the key for each of a window of jobs, as in listing.sql. Part 0 has no window.
-- name: pick
with looked (part, seq, topic, key, matches) as materialized (
    select 1, t.seq, t.topic, t.key, {fitting t}
      from {window seq, topic, key from delayed where cast(:delayed as boolean)} t
    union all
    select 2, t.seq, t.topic, t.key, {fitting t}
      from {window seq, topic, key from blocked where cast(:blocked as boolean)} t
    union all
    select 3, t.seq, t.topic, t.key, {fitting t}
      from {window seq, topic, key from lease where cast(:reserved as boolean)} t
    union all
    select 4, t.seq, t.topic, t.key, {fitting t}
      from {window seq, topic, key from buried where cast(:buried as boolean)} t
    union all
    select 5, t.seq, t.topic, t.key, {fitting t}
      from {window seq, topic, key from done where cancelled and cast(:cancelled as boolean)} t
    union all
    select 6, j.seq, j.topic, j.key,
           (cast(:topic as text) is null or j.topic = :topic)
           and (select 1 from towpath.ready r
                 where r.topic = j.topic and r.priority = j.priority and r.seq = j.seq) is not null
           and (not cast(:deep as boolean) or {fits j})
      from {window seq, created_at, priority, topic, key, payload from job where cast(:many_ready as boolean)} j
    union all
    select 0, t.seq, t.topic, t.key, {fitting t} from towpath.topic n cross join towpath.ready t
     where cast(:few_ready as boolean) and t.topic = n.name and (cast(:topic as text) is null or n.name = :topic)
       and t.seq > cast(:low as bigint) and t.seq < cast(:high as bigint)
    union all
    select 0, j.seq, j.topic, j.key,
           {fits j} and (select l.state from towpath.located l where l.seq = j.seq) in {names states}
      from towpath.topic n cross join towpath.job j
     where cast(:keyed as boolean) and j.topic = n.name and j.key = :key
       and (cast(:topic as text) is null or n.name = :topic)
       and j.seq > cast(:low as bigint) and j.seq < cast(:high as bigint))
select f.seq, e.edge, e.number,
       f.key is not null and (select 1 from towpath.unique_key u
                               where u.topic = f.topic and u.key = f.key
                                 and u.id <> (select j.id from towpath.job j where j.seq = f.seq)) is not null as taken
  from (select case when cast(:down as boolean) then max(low) else min(high) end as edge,
               coalesce(sum(number), 0) as number
          from (select count(*) as number,
                       case when part > 0 and count(*) = cast(:window as bigint) then min(seq) end as low,
                       case when part > 0 and count(*) = cast(:window as bigint) then max(seq) end as high
                  from looked group by part) as p) as e
  left join (select seq, topic, key from looked where matches
              order by case when cast(:down as boolean) then -seq else seq end
              limit cast(:limit as bigint)) as f
    on e.edge is null or case when cast(:down as boolean) then f.seq >= e.edge else f.seq <= e.edge end
 order by case when cast(:down as boolean) then -f.seq else f.seq end;

-- name: chosen [sqlite]
select id, topic, key, seq from towpath.job where seq = :seq;

-- name: chosen [postgres]
select j.id, j.topic, j.key, j.seq
  from json_to_recordset(cast(:items as json)) as i(seq bigint) join towpath.job j on j.seq = i.seq;

-- name: taken
select exists (select 1 from towpath.job j
                 join towpath.unique_key u on u.topic = j.topic and u.key = j.key and u.id <> j.id
                where j.seq = :seq) as taken;

-- name: make
insert into towpath.bulk
       (id, created_at, begins_at, up_to, next, counted, exact, verb, state, by, choice)
select :id, {now}, {now} + cast(:delay as bigint), :up_to, 0, :counted, :exact, :verb, 'waiting', :by,
       :choice
 where true
on conflict (id) do nothing;

-- name: find
select id, epoch, created_at, begins_at, ended_at, up_to, next, looked, done, refused, counted, exact,
       verb, state, by, choice, refusals
  from towpath.bulk where id = :id;

-- name: list
select id, epoch, created_at, begins_at, ended_at, up_to, next, looked, done, refused, counted, exact,
       verb, state, by, choice, refusals
  from towpath.bulk order by created_at desc, id desc limit :limit;

-- name: stop
update towpath.bulk set state = 'stopped', ended_at = {now}, epoch = epoch + 1
 where id = :id and ended_at is null returning id;

-- name: due
select id, epoch from towpath.bulk
 where ended_at is null and begins_at <= {now} order by begins_at limit 100;

-- Of two processes that are about to do the same round one gets the row. The other one steps over it,
-- or finds another epoch.
-- name: hold
select id, epoch, created_at, begins_at, ended_at, up_to, next, looked, done, refused, counted, exact,
       verb, state, by, choice, refusals
  from towpath.bulk
 where id = :id and epoch = :epoch and ended_at is null and begins_at <= {now} {skip_locked};

-- name: move
update towpath.bulk
   set epoch = epoch + 1, next = :next, looked = :looked, done = :done, refused = :refused,
       refusals = :refusals, state = case when cast(:ended as boolean) then 'done' else 'running' end,
       ended_at = case when cast(:ended as boolean) then {now} end
 where id = :id;

-- A part of a transaction that is taken back if one of its jobs is refused.
-- name: begin_part
savepoint towpath_part;

-- name: take_back_part
rollback to savepoint towpath_part;

-- name: end_part
release savepoint towpath_part;

-- name: forget
delete from towpath.bulk where ended_at < {now} - cast(:kept as bigint) returning id;
