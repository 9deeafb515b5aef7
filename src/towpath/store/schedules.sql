-- Schedules: when they fire, and that each fire is made once.

-- Written before anything is read: a caller's transaction on SQLite that has only read cannot write
-- after another writer.
-- name: add
insert into towpath.schedule (name, topic, cron, tz, every, catch_up, job)
values (:name, :topic, :cron, :tz, :every, :catch_up, :job)
on conflict do nothing returning name;

-- name: change
update towpath.schedule
   set topic = :topic, cron = :cron, tz = :tz, every = :every, catch_up = :catch_up, job = :job,
       next_at = :next_at, last_at = :last_at, error = :error, epoch = epoch + 1
 where name = :name;

-- name: pause [sqlite]
delete from towpath.owed_fire where schedule = :name;
update towpath.schedule set paused = true, next_at = null, epoch = epoch + 1 where name = :name;

-- name: pause [postgres]
with forgotten as (delete from towpath.owed_fire where schedule = :name)
update towpath.schedule set paused = true, next_at = null, epoch = epoch + 1 where name = :name;

-- name: resume
update towpath.schedule set paused = false, next_at = :next_at, error = null, epoch = epoch + 1
 where name = :name;

-- name: delete [sqlite]
delete from towpath.owed_fire where schedule = :name;
delete from towpath.schedule where name = :name returning topic;

-- name: delete [postgres]
with forgotten as (delete from towpath.owed_fire where schedule = :name)
delete from towpath.schedule where name = :name returning topic;

-- name: report
update towpath.schedule set error = :error
 where name = :name and epoch = :epoch and coalesce(error, '') <> :error returning name;

-- name: move_near
update towpath.schedule set next_at = :next_at, epoch = epoch + 1
 where name = :name and epoch = :epoch and next_at = :was returning name;

-- name: get
select name, topic, cron, tz, every, catch_up, job, paused, next_at, last_at, error, epoch, {now} as now
  from towpath.schedule where name = :name;

-- name: lock
select name, topic, cron, tz, every, catch_up, job, paused, next_at, last_at, error, epoch, {now} as now
  from towpath.schedule where name = :name {for_update};

-- name: list
select name, topic, cron, tz, every, catch_up, job, paused, next_at, last_at, error, epoch, {now} as now
  from towpath.schedule order by name;

-- name: due
select name, topic, cron, tz, every, catch_up, job, paused, next_at, last_at, error, epoch, {now} as now
  from towpath.schedule
 where next_at <= {now} and (next_at, name) > (cast(:at as bigint), cast(:name as text))
 order by next_at, name limit cast(:limit as bigint);

-- name: next_due
select min(next_at) - {now} as wait from towpath.schedule where next_at > {now};

-- A second process finds another epoch, or on PostgreSQL a lock, and makes no second fire.
-- name: claim
select s.name from {items i(name text, epoch bigint, was bigint)}
  join towpath.schedule s on s.name = i.name and s.epoch = i.epoch and s.next_at = i.was
 order by s.name {skip_locked of s};

-- name: advance [sqlite]
update towpath.schedule
   set next_at = :next_at, last_at = :last_at, error = null, epoch = epoch + 1 where name = :name;

-- name: advance [postgres]
update towpath.schedule s
   set next_at = i.next_at, last_at = i.last_at, error = null, epoch = s.epoch + 1
  from json_to_recordset(cast(:items as json)) as i(name text, next_at bigint, last_at bigint)
 where s.name = i.name;

-- name: owe
insert into towpath.owed_fire (schedule, fire_at, epoch, topic, job)
select schedule, fire_at, epoch, topic, job
  from {items i(schedule text, fire_at bigint, epoch bigint, topic text, job text)} where true
on conflict do nothing;

-- name: owed
select schedule, fire_at, epoch, topic, job from towpath.owed_fire
 where (schedule, fire_at) > (cast(:schedule as text), cast(:fire_at as bigint))
 order by schedule, fire_at limit cast(:limit as bigint);

-- A fire that another process is making at this moment is left to that one.
-- name: claim_owed
select 1 from towpath.owed_fire where schedule = :schedule and fire_at = :fire_at {skip_locked};

-- name: forget_owed
delete from towpath.owed_fire where schedule = :schedule and fire_at = :fire_at;

-- name: states_by_id [sqlite]
select l.id, l.state from towpath.located l where l.id = :id;

-- name: states_by_id [postgres]
select l.id, l.state from json_to_recordset(cast(:items as json)) as i(id uuid),
       lateral (select id, state from towpath.located where id = i.id limit 1) l;
