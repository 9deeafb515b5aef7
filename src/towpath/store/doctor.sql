-- What a doctor asks. Nothing here writes; from `overdue` on it needs our tables.

-- name: server [sqlite]
select sqlite_version() as version, false as standby,
       (select journal_mode from pragma_journal_mode) as log,
       case (select synchronous from pragma_synchronous) when 1 then 'normal' else 'full' end as commits;

-- name: server [postgres]
select current_setting('server_version') as version, pg_is_in_recovery() as standby,
       current_setting('fsync') as log, current_setting('synchronous_commit') as commits;

-- name: denied_tables [postgres]
select relname from pg_catalog.pg_class
 where relnamespace = to_regnamespace('{schema}') and relkind = 'r'
   and not (has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
            and (relname = 'migration' or has_table_privilege(oid, 'update')
                 and has_table_privilege(oid, 'delete')))
 order by relname;

-- A role without pg_read_all_stats does not see what other roles do: their `state` is null.
-- name: transactions [postgres]
with other as (
    select pid, usename, application_name, state, query,
           {now} - cast(extract(epoch from xact_start) * 1000000 as bigint) as age
      from pg_catalog.pg_stat_activity
     where datname = current_database()
       and coalesce(backend_type, 'client backend') = 'client backend'  -- null where it is hidden
       and pid <> pg_backend_pid()
    union all
    select null, owner, gid, 'prepared', '',
           {now} - cast(extract(epoch from prepared) * 1000000 as bigint)
      from pg_catalog.pg_prepared_xacts where database = current_database())
select pid, usename, application_name, state, age, left(query, 200) as query from other
 where age > cast(:patience as bigint) or state is null
 order by age desc nulls last;

-- The key of delayed jobs begins with their topic: a range of each, and so many rows of it at most.
-- name: overdue
select late.topic, late.jobs, {now} - late.first as by from (
    select n.name as topic,
           (select count(*) from (
                select 1 from towpath.delayed d
                 where d.topic = n.name and d.run_at < {now} - cast(:patience as bigint)
                 limit 1000) as due) as jobs,
           (select min(d.run_at) from towpath.delayed d where d.topic = n.name) as first
      from towpath.topic n) as late
 where late.jobs > 0 order by late.topic;

-- name: late_schedules
select name as topic, 1 as jobs, {now} - next_at as by from towpath.schedule
 where next_at < {now} - cast(:patience as bigint) order by next_at;

-- name: ended_leases
select topic, count(*) as jobs, {now} - min(until) as by from towpath.lease
 where until < {now} - cast(:patience as bigint) group by topic order by topic;

-- A job that was given back comes up again within a minute: it is among the first in line.
-- name: put_off
select f.seq, f.error from (
    select seq, epoch from (select seq, epoch from towpath.delayed where topic = :topic
                             order by run_at, seq limit :limit) as found_d
    union all
    select seq, epoch from (select seq, epoch from towpath.ready where topic = :topic
                             order by priority, seq limit :limit) as found_r) as found
  join towpath.failure f on f.seq = found.seq and f.epoch = found.epoch and f.kind = 'unknown'
 order by f.seq;

-- name: unplaced
select name as topic, count(*) as jobs, {now} - min(at) as by from towpath.posted
 where at < {now} - cast(:patience as bigint) group by name order by name;

-- Counts from the time of closing, which may be long before the deletion: the time of that is not
-- stored.
-- name: undeleted
select 'deleted channels' as topic, count(*) as jobs, {now} - min(closed_at) as by
  from towpath.channel c where name is null and closed_at < {now} - cast(:patience as bigint)
   and not exists (select 1 from towpath.channel f where f.source = c.id)
having count(*) > 0;

-- name: overdue_lifetimes
select c.name as topic, 1 as jobs, {now} - l.expires_at as by
  from towpath.lifetime l join towpath.channel c on c.id = l.channel and c.name is not null
 where l.expires_at < {now} - cast(:patience as bigint) order by l.expires_at limit 1000;

-- name: open_streams
select 'streams' as topic, count(*) as jobs, {now} - min(at) as by from (
    select coalesce((select d.finished_at from towpath.done d where d.seq = c.job),
                    (select b.buried_at from towpath.buried b where b.seq = c.job),
                    case when not exists (select 1 from towpath.job j where j.seq = c.job)
                         then c.created_at end) as at
      from towpath.channel c where c.job is not null and c.closed_at is null) as found
 where at < {now} - cast(:patience as bigint) having count(*) > 0;

-- Spent passes and revoked tokens: once they have expired, no row is needed to refuse them.
-- name: spent_tokens
select 'tokens' as topic, count(*) as jobs, {now} - min(expires_at) as by from towpath.revoked_token
 where expires_at < {now} - cast(:patience as bigint) having count(*) > 0;

-- name: troubled_consumers
select c.name as channel, r.name, c.head - r.acked as lag, r.acked < c.low as is_overtaken,
       {now} - r.seen_at as silent, {now} - e.at as behind
  from towpath.consumer r join towpath.channel c on c.id = r.channel and c.name is not null
  left join towpath.event e on e.channel = r.channel and e.seq = r.acked + 1
 where r.seen_at < {now} - cast(:ttl as bigint) or r.acked < c.low
    or e.at < {now} - cast(:patience as bigint)
 order by c.name, r.name limit :limit;

-- Channels that exceed a limit by more than a tenth: upkeep visits channels in turn, so a little more is
-- normal.
-- name: over_limits
select c.name
  from towpath.channel c left join towpath.lifetime l on l.channel = c.id
 where c.name is not null and c.job is null and c.source is null
   and (coalesce(l.max_count, cast(:max_count as bigint)) > 0
        and (c.head - c.low) * 10 > coalesce(l.max_count, cast(:max_count as bigint)) * 11
     or coalesce(l.max_bytes, cast(:max_bytes as bigint)) > 0
        and c.bytes * 10 > coalesce(l.max_bytes, cast(:max_bytes as bigint)) * 11
     or coalesce(l.max_age, cast(:max_age as bigint)) > 0
        and ({now} - (select e.at from towpath.event e
                       where e.channel = c.id and e.seq > c.low order by e.seq limit 1)) * 10
            > coalesce(l.max_age, cast(:max_age as bigint)) * 11)
 order by c.name limit :limit;
