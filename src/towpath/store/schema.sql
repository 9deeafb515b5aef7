-- name: schema_exists [sqlite]
select 1 from sqlite_master where type = 'table' and name = 'towpath_migration';

-- Reads a real table: only that makes a connection drop the schema that it read before it waited for its
-- turn.
-- name: schema_exists [postgres]
select 1 from pg_catalog.pg_class where oid = to_regclass('towpath.migration');

-- A role that may create the namespace may have made it already.
-- name: namespace_exists [sqlite]
select 1;

-- name: namespace_exists [postgres]
select 1 from pg_catalog.pg_namespace where oid = to_regnamespace('{schema}');

-- Asked beforehand: a refusal would abort the transaction of a borrowed connection.
-- name: may_create [sqlite]
select 1;

-- Only the owner may change a table that is there; one role owns all of ours.
-- name: may_create [postgres]
select 1 where case when to_regnamespace('{schema}') is null
                    then has_database_privilege(current_database(), 'create')
                    else has_schema_privilege(to_regnamespace('{schema}'), 'create') end
   and not exists (select from pg_catalog.pg_class c where c.oid = to_regclass('towpath.migration')
                      and not pg_has_role(c.relowner, 'usage'));

-- name: create_namespace [postgres]
create schema {schema};

-- name: applied
select version, oldest from towpath.migration order by version desc limit 1;

-- name: create_migration
create table towpath.migration (version integer not null primary key, oldest integer not null, applied_at bigint not null);

-- name: record
insert into towpath.migration (version, oldest, applied_at) values (:version, :oldest, {now});

-- Two processes that start together take turns.
-- name: take_turns [postgres]
select pg_advisory_xact_lock(8460972114);

-- DDL waits a while for its locks, not without end; a borrowed connection gets its own setting back.
-- name: limit_patience [postgres]
with theirs as materialized (select current_setting('lock_timeout') as patience),
ours as materialized (select patience, set_config('lock_timeout', '10s', true) from theirs)
select patience from ours;

-- name: restore_patience [postgres]
select set_config('lock_timeout', :patience, true);

-- name: tables [sqlite]
select name from sqlite_master
 where type = 'table' and substr(name, 1, 8) = 'towpath_' and name <> 'towpath_migration';

-- name: tables [postgres]
select cast(relname as text) from pg_catalog.pg_class
 where relnamespace = to_regnamespace('{schema}') and relkind = 'r' and relname <> 'migration';
