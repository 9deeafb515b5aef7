-- What a doctor asks. Nothing here writes, and only the last two need our tables.

-- name: server [sqlite]
select sqlite_version(), false,
       (select journal_mode from pragma_journal_mode),
       case (select synchronous from pragma_synchronous) when 1 then 'normal' else 'full' end;

-- name: server [postgres]
select current_setting('server_version'), pg_is_in_recovery(), current_setting('fsync'),
       current_setting('synchronous_commit');

-- name: denied_tables [sqlite]
select name from sqlite_master where false;

-- name: denied_tables [postgres]
select relname from pg_catalog.pg_class
 where relnamespace = to_regnamespace('{schema}') and relkind = 'r'
   and not (has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
            and (relname = 'migration' or has_table_privilege(oid, 'update')
                 and has_table_privilege(oid, 'delete')))
 order by relname;

-- What others do is hidden from a role without pg_read_all_stats: it has no state then.
-- name: transactions [sqlite]
select null, null, null, null, null, null where false;

-- name: transactions [postgres]
with other as (
    select pid, usename, application_name, state, query,
           {now} - cast(extract(epoch from xact_start) * 1000000 as bigint) as age
      from pg_catalog.pg_stat_activity
     where datname = current_database()
       and coalesce(backend_type, 'client backend') = 'client backend'  -- hidden from some, too
       and pid <> pg_backend_pid()
    union all
    select null, owner, gid, 'prepared', '',
           {now} - cast(extract(epoch from prepared) * 1000000 as bigint)
      from pg_catalog.pg_prepared_xacts where database = current_database())
select pid, usename, application_name, state, age, left(query, 200) from other
 where age > cast(:patience as bigint) or state is null
 order by age desc nulls last;

-- name: overdue
select topic, count(*), {now} - min(run_at) from towpath.delayed
 where run_at < {now} - cast(:patience as bigint) group by topic order by topic;

-- name: late_schedules
select name, 1, {now} - next_at from towpath.schedule
 where next_at < {now} - cast(:patience as bigint) order by next_at;

-- name: ended_leases
select topic, count(*), {now} - min(until) from towpath.lease
 where until < {now} - cast(:patience as bigint) group by topic order by topic;
