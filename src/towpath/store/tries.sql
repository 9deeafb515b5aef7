-- The tries of a job: failures, notes of other ends, the lease that runs, and the end.

-- name: failed_tries
select f.epoch, f.kind as outcome, f.reserved_at as started_at, f.failed_at as ended_at, f.worker,
       f.error, f.traceback
  from towpath.failure f where f.seq = :seq order by f.epoch;

-- name: noted_tries
select n.epoch, n.text, n.at as ended_at from towpath.note n
 where n.seq = :seq and n.kind = 'try' order by n.no;

-- A job that was cancelled while it waited has no last try.
-- name: last_try
select l.epoch, 'running' as outcome, l.reserved_at as started_at, null as ended_at,
       coalesce(l.worker, (select s.worker from towpath.session s where s.id = l.session)) as worker,
       null as error, null as traceback
  from towpath.lease l where l.seq = :seq
union all
select d.epoch, case when d.cancelled then 'cancelled' else 'completed' end,
       d.finished_at - d.duration, d.finished_at, null, null, null
  from towpath.done d where d.seq = :seq and d.duration is not null and d.epoch > 0;
