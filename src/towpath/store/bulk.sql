-- Bulk acts: one verb for many jobs, some at a time.

-- name: newest
select coalesce(max(seq), 0) as seq from towpath.job;

-- The next jobs by number, of the tables of the wanted states, and which of them fit. So much is looked
-- at and no more, whatever the filter finds.
-- name: pick
select l.seq, j.id, j.topic, j.key,
       (cast(:since as bigint) is null or j.created_at >= :since)
   and (cast(:until as bigint) is null or j.created_at < :until)
   and (cast(:error as text) is null or coalesce(
        (select e.error from towpath.failure e where e.seq = l.seq order by e.epoch desc limit 1), '')
        {like} :error escape '\')
   and (cast(:text as text) is null or j.payload {like} :text escape '\'
        or coalesce(j.key, '') {like} :text escape '\'
        or coalesce(
        (select e.error from towpath.failure e where e.seq = l.seq order by e.epoch desc limit 1), '')
        {like} :text escape '\') as fits,
       exists (select 1 from towpath.unique_key u
                where u.topic = j.topic and u.key = j.key and u.id <> j.id) as taken
  from (select seq from (
            select seq from (
                select seq from towpath.ready
                 where cast(:ready as boolean) and seq > :after and seq <= :up_to
                   and (cast(:topic as text) is null or topic = :topic)
                   and (cast(:key as text) is null or key = :key)
                 order by seq limit :most) as r
            union all
            select seq from (
                select seq from towpath.delayed
                 where cast(:delayed as boolean) and seq > :after and seq <= :up_to
                   and (cast(:topic as text) is null or topic = :topic)
                   and (cast(:key as text) is null or key = :key)
                 order by seq limit :most) as d
            union all
            select seq from (
                select seq from towpath.blocked
                 where cast(:blocked as boolean) and seq > :after and seq <= :up_to
                   and (cast(:topic as text) is null or topic = :topic)
                   and (cast(:key as text) is null or key = :key)
                 order by seq limit :most) as b
            union all
            select seq from (
                select seq from towpath.lease
                 where cast(:reserved as boolean) and seq > :after and seq <= :up_to
                   and (cast(:topic as text) is null or topic = :topic)
                   and (cast(:key as text) is null or key = :key)
                 order by seq limit :most) as h
            union all
            select seq from (
                select seq from towpath.buried
                 where cast(:buried as boolean) and seq > :after and seq <= :up_to
                   and (cast(:topic as text) is null or topic = :topic)
                   and (cast(:key as text) is null or key = :key)
                 order by seq limit :most) as f
            union all
            select seq from (
                select seq from towpath.done
                 where cast(:cancelled as boolean) and cancelled and seq > :after and seq <= :up_to
                   and (cast(:topic as text) is null or topic = :topic)
                   and (cast(:key as text) is null or key = :key)
                 order by seq limit :most) as c) as every
         order by seq limit :most) as l
  join towpath.job j on j.seq = l.seq
 order by l.seq;

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
