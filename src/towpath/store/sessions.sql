-- Sessions: which workers live, and what becomes of the leases of dead ones.

-- name: start
insert into towpath.session (id, worker, topics, about, started_at, beat_at)
values (:session, :worker, :topics, :about, {now}, {now})
on conflict do nothing returning id;

-- name: beat
update towpath.session set beat_at = {now}, beats = beats + 1 where id = :session
returning id, stop_at;

-- name: ask_to_stop
update towpath.session set stop_at = coalesce(stop_at, {now}) where id = :session returning id;

-- name: mark_started [sqlite]
update towpath.lease set started = true where seq = :seq and epoch = :epoch and not started;

-- name: mark_started [postgres]
with item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(seq bigint, epoch bigint))
update towpath.lease l set started = true from item i
 where l.seq = any(array(select seq from item)) and l.seq = i.seq and l.epoch = i.epoch
   and not l.started;

-- name: cancelled_of
select seq, epoch from towpath.lease where session = :session and cancelled;

-- name: list_sessions
select s.id, s.worker, s.topics, s.about, s.started_at, s.beat_at, s.stop_at, {now} as now,
       (select count(*) from towpath.lease l where l.session = s.id) as leases
  from towpath.session s order by s.started_at, s.id;

-- The first jobs that each session holds.
-- name: held_by
select session, seq from (
    select session, seq, row_number() over (partition by session order by seq) as nth
      from towpath.lease where session is not null) as held
 where nth <= cast(:most as bigint) order by session, seq;

-- Leases that name neither a session nor a worker.
-- name: unnamed_leases
select topic, count(*) as leases, min(until) as until from towpath.lease
 where session is null and worker is null group by topic order by topic;

-- name: hear
insert into towpath.remote_worker (worker, topics, started_at, heard_at)
values (:worker, :topics, {now}, {now})
on conflict (worker) do update set topics = excluded.topics, heard_at = excluded.heard_at;

-- A worker that holds leases is listed even if nothing was heard of it for long.
-- name: list_remote
select k.worker, max(k.topics) as topics, min(k.started_at) as started_at,
       max(k.heard_at) as heard_at, {now} as now, cast(sum(k.leases) as bigint) as leases
  from (select worker, topics, started_at, heard_at, 0 as leases from towpath.remote_worker
         union all
        select worker, null, min(reserved_at), max(coalesce(touched_at, reserved_at)), count(*)
          from towpath.lease where worker is not null group by worker) k
 group by k.worker order by min(k.started_at), k.worker;

-- name: prune_remote
delete from towpath.remote_worker where worker in (
    select worker from towpath.remote_worker where heard_at <= {now} - cast(:silence as bigint)
     order by heard_at limit cast(:limit as bigint))
returning worker;

-- name: observe
select id, beats, {now} as now from towpath.session;

-- Deletes the session only if it has not beaten since it was read.
-- name: end_session
delete from towpath.session where id = :session and (cast(:beats as bigint) is null or beats = :beats)
returning worker, topics;

-- name: leases_of
select l.seq, l.epoch, l.started, coalesce(l.crashes, 0) as crashes, j.options
  from towpath.lease l join towpath.job j on j.seq = l.seq where l.session = :session;

-- name: next_leases
select count(*) as number, max(seq) as upto from (
    select seq from towpath.lease where seq > :after order by seq limit :limit) as found;

-- Leases of sessions that are gone: a reservation may have been on its way when its session ended.
-- name: orphans
select l.seq, l.epoch, l.started, coalesce(l.crashes, 0) as crashes, j.options
  from towpath.lease l join towpath.job j on j.seq = l.seq
 where l.seq > :after and l.seq <= :upto and l.session is not null
   and not exists (select 1 from towpath.session s where s.id = l.session);
