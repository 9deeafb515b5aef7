-- What a doctor and the metrics ask about webhooks.

-- name: late
select count(*) as waiting, max({now} - t.attempt_at) as oldest,
       (select 1 from towpath.webhook_delivery_jobs l
         where l.status = 'Leased' and l.lease_until > {now} limit 1) is not null as leased
  from (select j.attempt_at from towpath.webhook_delivery_jobs j
         where j.status = 'Pending' and j.lease_until is null
         order by j.lease_until, j.late, j.id limit 1000) t
 where t.attempt_at < {now} - cast(:patience as bigint);

-- name: stopped
select u.id, u.channel, coalesce(h.stopped_why, '') as why
  from towpath.subscription_health h join towpath.subscriptions u on u.id = h.subscription_id
 where h.stopped_at is not null and u.deleted_at is null order by u.id limit :limit;

-- name: behind
select c.name as channel, c.head - r.acked as lag, {now} - e.at as behind
  from towpath.consumer r join towpath.channel c on c.id = r.channel and c.name is not null
  join towpath.event e on e.channel = r.channel and e.seq = r.acked + 1
 where r.name = :consumer and e.at < {now} - cast(:patience as bigint)
 order by c.name limit :limit;

-- name: counts
select count(*) as subscriptions, coalesce(sum(case when u.paused then 1 else 0 end), 0) as paused,
       coalesce(sum(case when h.failures > 0 and h.stopped_at is null then 1 else 0 end), 0) as failing,
       coalesce(sum(case when h.stopped_at is not null then 1 else 0 end), 0) as stopped,
       (select count(*) from towpath.webhook_delivery_jobs where status = 'Pending') as pending,
       (select count(*) from towpath.webhook_delivery_jobs where status = 'Leased') as leased,
       (select count(*) from towpath.dead_letters) as dead_letters
  from towpath.subscriptions u join towpath.subscription_health h on h.subscription_id = u.id
 where u.deleted_at is null;

-- name: role [postgres]
select cast(r.rolname as text) from pg_catalog.pg_roles r
 where r.rolname = any(string_to_array(:names, ','))
   and pg_has_role(current_user, r.oid, 'member')
   and not pg_has_role((select c.relowner from pg_catalog.pg_class c
                         where c.oid = to_regclass('towpath.migration')), 'usage')
 order by r.rolname limit 1;
