-- Delivery jobs: claimed, reported, and taken back from workers that are gone.

-- Claims by one statement, so that no job is claimed twice. The order names every column of the index
-- behind `status`: by `id` alone PostgreSQL would read all jobs that have ended.
-- name: claim [sqlite]
update towpath.webhook_delivery_jobs
   set status = 'Leased', lease_token = :token, worker_id = :worker,
       lease_until = :now + :slack
           + (select u.timeout from towpath.subscriptions u
               where u.id = towpath.webhook_delivery_jobs.subscription_id)
 where id in (select j.id from towpath.webhook_delivery_jobs j
               where j.status = 'Pending' and j.lease_until is null and j.late = :late
                 and j.subscription_id not in (select value from json_each(:unable))
               order by j.lease_until, j.late, j.id limit :most)
returning id;
select j.id, j.saga_id, j.attempt_no, j.late, j.lease_until, :now as now, e.event, e.type, e.at, e.encoding,
       e.payload, u.id as subscription, u.url, u.body, u.timeout, u.sealed
  from towpath.webhook_delivery_jobs j
  join towpath.sagas s on s.id = j.saga_id
  join towpath.webhook_events e on e.id = s.event_id
  join towpath.subscriptions u on u.id = j.subscription_id
 where j.id = @id;

-- name: claim [postgres]
with clock as materialized (select {now} as now),
picked as materialized (
    select t.id from json_to_recordset(cast(:items as json)) as i(late boolean, most bigint)
     cross join lateral (
        select j.id from towpath.webhook_delivery_jobs j
         where j.status = 'Pending' and j.lease_until is null and j.late = i.late
           and j.subscription_id <> all(array(
               select cast(value as bigint) from json_array_elements_text(cast(:unable as json))))
         order by j.lease_until, j.late, j.id limit i.most for update skip locked) t)
update towpath.webhook_delivery_jobs j
   set status = 'Leased', lease_token = :token, worker_id = :worker,
       lease_until = c.now + u.timeout + cast(:slack as bigint)
  from clock c, towpath.subscriptions u, towpath.sagas s, towpath.webhook_events e
 where j.id = any(array(select id from picked)) and u.id = j.subscription_id and s.id = j.saga_id
   and e.id = s.event_id
returning j.id, j.saga_id, j.attempt_no, j.late, j.lease_until, c.now, e.event, e.type, e.at, e.encoding,
       e.payload, u.id as subscription, u.url, u.body, u.timeout, u.sealed;

-- name: claimable
select 1 from towpath.webhook_delivery_jobs j
 where j.status = 'Pending' and j.lease_until is null
   and j.subscription_id not in (select cast(value as bigint) from {values :unable})
 order by j.lease_until, j.late, j.id limit 1;

-- By statistics of an empty line SQLite would read every job that there ever was.
-- name: claimed
select j.id, j.saga_id, j.attempt_no, j.late, j.lease_until, {now} as now, e.event, e.type, e.at, e.encoding,
       e.payload, u.id as subscription, u.url, u.body, u.timeout, u.sealed
  from towpath.webhook_delivery_jobs j {index towpath_idx_job_status_lease}
  join towpath.sagas s on s.id = j.saga_id
  join towpath.webhook_events e on e.id = s.event_id
  join towpath.subscriptions u on u.id = j.subscription_id
 where j.status = 'Leased' and j.lease_token = :token;

-- `coalesce` keeps PostgreSQL from the index on `status`: where it expects no Leased jobs, it would look
-- at all of them for each report.
-- name: report [sqlite]
update towpath.webhook_delivery_jobs
   set status = :status, lease_until = null, finished_at = :now, response_status = :response_status,
       error_code = :error_code, retry_after = :retry_after, duration = :duration, excerpt = :excerpt,
       location = :location
 where id = :job and lease_token = :token and status = 'Leased'
returning id, lease_token;

-- name: report [postgres]
update towpath.webhook_delivery_jobs j
   set status = i.status, lease_until = null, finished_at = {now}, response_status = i.response_status,
       error_code = i.error_code, retry_after = i.retry_after, duration = i.duration,
       excerpt = i.excerpt, location = i.location
  from json_to_recordset(cast(:items as json)) as i(
       job bigint, token bigint, status text, response_status integer, error_code text,
       retry_after bigint, duration bigint, excerpt text, location text)
 where j.id = i.job and j.lease_token = i.token and coalesce(j.status, '') = 'Leased'
returning j.id, j.lease_token;

-- name: standing
select j.id, j.saga_id, j.status, j.lease_token, j.lease_until, j.worker_id, j.error_code
  from towpath.webhook_delivery_jobs j where j.id {in_items job bigint};

-- The worker cannot make the attempt, so its lease is over now. The cleaner takes it back and counts no
-- loss.
-- name: decline [sqlite]
update towpath.webhook_delivery_jobs set lease_until = min(lease_until, :now - 1), error_code = :unopened
 where id = :job and lease_token = :token and status = 'Leased';

-- name: decline [postgres]
update towpath.webhook_delivery_jobs j
   set lease_until = least(j.lease_until, {now} - 1), error_code = cast(:unopened as text)
  from {items i(job bigint, token bigint)}
 where j.id = i.job and j.lease_token = i.token and coalesce(j.status, '') = 'Leased';

-- The only way from Leased back to Pending. The token is deleted, so that a later report of that worker
-- is refused.
-- name: reset [sqlite]
select id as job, saga_id as saga, subscription_id as subscription, lease_until as until,
       worker_id as worker, cancel_requested, error_code is :unopened as declined,
       lease_losses + (error_code is not :unopened) as losses
  from towpath.webhook_delivery_jobs
 where status = 'Leased' and lease_until < :now order by lease_until, late, id limit :limit;
update towpath.webhook_delivery_jobs
   set status = case when @losses >= :most or @cancel_requested then 'Failed' else 'Pending' end,
       finished_at = case when @losses >= :most or @cancel_requested then :now end,
       error_code = case when @losses >= :most or @cancel_requested then :error end,
       lease_losses = @losses, lease_until = null, lease_token = null, worker_id = null
 where id = @job
returning id as job, saga_id as saga, subscription_id as subscription, @until as until,
          @worker as worker, status = 'Failed' as lost, @cancel_requested as cancelled,
          @declined as declined;

-- name: reset [postgres]
with picked as materialized (
    select j.id, j.lease_until, j.worker_id, j.cancel_requested,
           coalesce(j.error_code = :unopened, false) as declined,
           j.lease_losses + case when j.error_code = :unopened then 0 else 1 end as losses
      from towpath.webhook_delivery_jobs j
     where j.status = 'Leased' and j.lease_until < {now}
     order by j.lease_until, j.late, j.id limit cast(:limit as bigint) for update skip locked),
lost as materialized (
    select p.*, p.losses >= cast(:most as integer) or p.cancel_requested as lost from picked p)
update towpath.webhook_delivery_jobs j
   set status = case when l.lost then 'Failed' else 'Pending' end,
       finished_at = case when l.lost then {now} end,
       error_code = case when l.lost then cast(:error as text) end,
       lease_losses = l.losses, lease_until = null, lease_token = null, worker_id = null
  from lost l
 where j.id = l.id
returning j.id as job, j.saga_id as saga, j.subscription_id as subscription, l.lease_until as until,
       l.worker_id as worker, l.lost, l.cancel_requested as cancelled, l.declined;
