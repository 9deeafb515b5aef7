-- Tickets that move without a lease, one by one: each is taken at the epoch that was read.

-- name: take_ready
delete from towpath.ready
 where topic = :topic and priority = :priority and seq = :seq and epoch = :epoch
returning {ticket}, null as waits;

-- name: take_delayed
delete from towpath.delayed where seq = :seq and epoch = :epoch returning {ticket}, null as waits;

-- name: take_blocked
delete from towpath.blocked where seq = :seq and epoch = :epoch returning {ticket}, waits;

-- Locks the ticket and leaves it where it lies. If it were taken and put back, a transaction that waits
-- for this row, to let the job in or to end it, would find nothing and would not look again.
-- name: hold_blocked
select {ticket}, waits from towpath.blocked where seq = :seq and epoch = :epoch {for_update};

-- name: change_blocked
update towpath.blocked set priority = :priority, limit_key = :limit_key where seq = :seq;

-- name: take_buried
delete from towpath.buried where seq = :seq and epoch = :epoch returning {ticket}, null as waits;

-- name: take_cancelled
delete from towpath.done where seq = :seq and epoch = :epoch and cancelled returning {ticket}, null as waits;

-- name: put_ready
insert into towpath.ready ({ticket})
values ({ticket :});

-- name: put_delayed
insert into towpath.delayed ({ticket}, run_at)
values ({ticket :}, :run_at);

-- name: put_blocked
insert into towpath.blocked ({ticket}, waits) values ({ticket :}, :waits);

-- name: put_cancelled
insert into towpath.done ({ticket}, finished_at, prune_at, cancelled)
values ({ticket :},
        {now}, {now} + cast(:retention as bigint), true);

-- name: request_cancel
update towpath.lease set cancelled = true where seq = :seq and epoch = :epoch returning seq;

-- name: claim_key
insert into towpath.unique_key (topic, key, id)
select topic, key, id from towpath.job where seq = :seq and key is not null
on conflict do nothing
returning key;

-- name: free_key
delete from towpath.unique_key where topic = :topic and key = :key and id = :id;

-- name: reprioritise
update towpath.job set priority = :priority where seq = :seq;

-- name: reschedule
update towpath.job set run_at = coalesce(cast(:run_at as bigint), {now} + cast(:delay as bigint))
 where seq = :seq returning run_at, run_at <= {now} as is_due;

-- name: forget [sqlite]
select :seq as seq;
{forget};

-- name: forget [postgres]
with gone as (select cast(:seq as bigint) as seq),
{forget}
select seq from gone;

-- Locks the rows until the kick commits, so that no key is claimed for a job that another transaction
-- has moved. Leaves out jobs that wait for other jobs, and failed runs, which lie here until their job
-- is told.
-- name: next_buried
select seq, epoch, key, no from towpath.buried
 where topic = :topic and no > :after
   and not exists (select 1 from towpath.dependency d
                    where d.child = towpath.buried.seq and not d.completed)
   and not exists (select 1 from towpath.run r where r.job = towpath.buried.seq)
 order by no limit :limit {skip_locked};

-- name: next_delayed
select seq, epoch, run_at from towpath.delayed
 where topic = :topic and (run_at, seq) > (:after, :after_seq)
 order by run_at, seq limit :limit;

-- name: unfinished_of
select {located l} from towpath.located l where l.seq in (
    select seq from (select seq from towpath.ready where topic = :topic limit :limit) as r
    union all
    select seq from (select seq from towpath.delayed where topic = :topic limit :limit) as d
    union all
    select seq from (select seq from towpath.blocked where topic = :topic limit :limit) as w
    union all
    select seq from (select seq from towpath.buried where topic = :topic limit :limit) as b)
 limit :limit;

-- Looks only at the heads of the lines: what has expired is usually among the oldest jobs there.
-- name: may_expire
select {located l} from towpath.located l where l.seq {in
    select j.seq from towpath.job j where j.options like '%"expires_%' and j.seq {in
        select seq from (select seq from towpath.ready where topic = :topic
                          order by priority, seq limit :limit) as found_r
        union all
        select seq from (select seq from towpath.delayed where topic = :topic
                          order by run_at, seq limit :limit) as found_d
        union all
        select seq from (select seq from towpath.blocked where topic = :topic
                          order by seq limit :limit) as found_w}};

-- name: note_expired
insert into towpath.failure (seq, epoch, failed_at, kind, error)
values (:seq, :epoch, {now}, :kind, :error) on conflict do nothing;
