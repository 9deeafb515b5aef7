-- Reading jobs.

-- name: get
select {located} from towpath.located where id = :id;

-- name: get_all [sqlite]
select {located} from towpath.located where id = :id;

-- name: get_all [postgres]
select {located l} from json_to_recordset(cast(:items as json)) as i(id uuid),
       lateral (select * from towpath.located where id = i.id limit 1) l;

-- name: numbered
select {located} from towpath.located where seq = :seq;

-- name: failures
select epoch, kind, error, traceback, failed_at from towpath.failure
 where seq = (select seq from towpath.job where id = :id) order by epoch;

-- name: peek_ready
select {located} from towpath.located where seq = (
    select seq from towpath.ready where topic = :topic order by priority, seq limit 1);

-- name: peek_delayed
select {located} from towpath.located where seq = (
    select seq from towpath.delayed where topic = :topic order by run_at, seq limit 1);

-- name: peek_buried
select {located} from towpath.located where seq = (
    select seq from towpath.buried where topic = :topic order by no limit 1);
