-- Jobs that wait for other jobs.

-- name: depend [sqlite]
insert into towpath.dependency (child, nth, parent, completed, result, goes_on, error)
values (:child, :nth, :parent, :completed, :result, :goes_on, :error)
on conflict do nothing returning child;

-- name: depend [postgres]
insert into towpath.dependency (child, nth, parent, completed, result, goes_on, error)
select child, nth, parent, completed, result, goes_on, error
  from json_to_recordset(cast(:items as json)) as i(
       child bigint, nth integer, parent bigint, completed boolean, result text,
       goes_on boolean, error text)
on conflict do nothing returning child;

-- name: await_ready [sqlite]
update towpath.ready set awaited = true
 where topic = :topic and priority = :priority and seq = :seq returning seq;

-- name: await_ready [postgres]
update towpath.ready r set awaited = true where r.ctid = any(array(
       select t.tid
         from json_to_recordset(cast(:items as json)) as i(seq bigint, topic text, priority bigint),
              lateral (select y.ctid as tid from towpath.ready y
                        where y.topic = i.topic and y.priority = i.priority and y.seq = i.seq
                          for update) t))
returning r.seq;

-- name: await_delayed
update towpath.delayed set awaited = true where seq {in_items seq bigint} returning seq;

-- name: await_blocked
update towpath.blocked set awaited = true where seq {in_items seq bigint} returning seq;

-- name: await_reserved
update towpath.lease set awaited = true where seq {in_items seq bigint} returning seq;

-- Moves a job that was just put in line to `blocked`.
-- name: hold_back [sqlite]
insert into towpath.blocked ({ticket}, waits) select {ticket}, :waits from towpath.ready
 where topic = :topic and priority = :priority and seq = :seq;
insert into towpath.blocked ({ticket}, waits) select {ticket}, :waits from towpath.delayed
 where seq = :seq;
delete from towpath.ready where topic = :topic and priority = :priority and seq = :seq;
delete from towpath.delayed where seq = :seq;

-- name: hold_back [postgres]
with item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           seq bigint, topic text, priority bigint, waits integer)),
picked as materialized (
    select t.tid from item i cross join lateral (
        select y.ctid as tid from towpath.ready y
         where y.topic = i.topic and y.priority = i.priority and y.seq = i.seq for update) t),
unreadied as (
    delete from towpath.ready r where r.ctid = any(array(select tid from picked))
    returning {ticket r}),
undelayed as (
    delete from towpath.delayed d where d.seq = any(array(select seq from item))
    returning {ticket d}),
held as (select * from unreadied union all select * from undelayed)
insert into towpath.blocked ({ticket}, waits)
select {ticket h}, i.waits from held h join item i on i.seq = h.seq;

-- name: ended
select parent as seq, completed from towpath.ended order by parent limit :limit;

-- name: note_completed [sqlite]
update towpath.dependency
   set completed = true, error = null,
       result = (select e.result from towpath.ended e where e.parent = :parent)
 where parent = :parent;

-- name: note_completed [postgres]
update towpath.dependency d set completed = true, error = null, result = e.result
  from towpath.ended e
 where d.parent = any(array(
       select i.parent from json_to_recordset(cast(:items as json)) as i(parent bigint)))
   and e.parent = d.parent;

-- Locks the jobs: where two transactions end the last parents of a job, one of them sees both ends.
-- name: hold_children
select seq from towpath.blocked where seq {in
    select child from towpath.dependency where parent {in_items parent bigint}}
 order by seq {for_update};

-- name: with_all_parents
select j.seq, j.payload, j.options from towpath.job j
 where j.seq {in_items seq bigint}
   and (select d.child from towpath.dependency d
         where d.child = j.seq and not d.completed limit 1) is null;

-- name: results_for
select result, goes_on, error from towpath.dependency where child = :seq order by nth;

-- name: results_size
select count(*) as parents, coalesce(sum({size coalesce(error, result)}), 0) as bytes
  from towpath.dependency where child = :seq;

-- Leaves a payload alone that was rewritten since it was read.
-- name: fill_in
update towpath.job set payload = :payload where seq = :seq and payload = :body;

-- Leaves a job blocked if a parent of it was requeued meanwhile, and runs again.
-- name: let_in [sqlite]
delete from towpath.blocked where seq = :seq
   and (select d.child from towpath.dependency d
         where d.child = :seq and not d.completed limit 1) is null
returning {ticket}, (select j.run_at from towpath.job j where j.seq = :seq) as run_at;
insert into towpath.ready ({ticket}) select {ticket @} where @run_at <= :now;
insert into towpath.delayed ({ticket}, run_at) select {ticket @}, @run_at where @run_at > :now;
select @topic;

-- name: let_in [postgres]
with gone as (
    delete from towpath.blocked b using towpath.job j
     where b.seq = any(array(
           select i.seq from json_to_recordset(cast(:items as json)) as i(seq bigint)))
       and j.seq = b.seq
       and (select d.child from towpath.dependency d
             where d.child = b.seq and not d.completed limit 1) is null
    returning {ticket b}, j.run_at),
readied as (
    insert into towpath.ready ({ticket}) select {ticket} from gone where run_at <= {now}),
postponed as (
    insert into towpath.delayed ({ticket}, run_at)
    select {ticket}, run_at from gone where run_at > {now})
select topic from gone;

-- Under the same condition as `let_in`: all parents have completed. A row in `ended` notes the failure,
-- so that the jobs that wait for this one are told.
-- name: fail_child [sqlite]
delete from towpath.blocked where seq = :seq
   and (select d.child from towpath.dependency d
         where d.child = :seq and not d.completed limit 1) is null
returning {ticket};
delete from towpath.unique_key where topic = @topic and key = @key;
insert into towpath.buried ({ticket}, buried_at) values ({ticket @}, :now);
insert into towpath.failure (seq, epoch, failed_at, kind, error)
values (@seq, @epoch, :now, :kind, :error) on conflict do nothing;
insert into towpath.ended (parent, completed) select @seq, false where @awaited
on conflict do nothing;
select @seq as seq, @epoch as epoch, @awaited as awaited;

-- name: fail_child [postgres]
with gone as (
    delete from towpath.blocked b
     where b.seq = cast(:seq as bigint)
       and (select d.child from towpath.dependency d
             where d.child = b.seq and not d.completed limit 1) is null
    returning {ticket b}),
unkeyed as (
    delete from towpath.unique_key k using gone g where k.topic = g.topic and k.key = g.key),
buried as (
    insert into towpath.buried ({ticket}, buried_at) select {ticket}, {now} from gone),
failed as (
    insert into towpath.failure (seq, epoch, failed_at, kind, error)
    select seq, epoch, {now}, cast(:kind as text), cast(:error as text) from gone on conflict do nothing),
told as (
    insert into towpath.ended (parent, completed) select seq, false from gone where awaited
    on conflict do nothing)
select seq, epoch, awaited from gone;

-- Only while the failure of the parent stands in `ended`: a requeue of the parent deletes that row. The
-- children that fail here get such rows, too, so that the jobs that wait for them are told in any case.
-- name: fail_children [sqlite]
select d.child from towpath.dependency d join towpath.blocked b on b.seq = d.child
 where d.parent = :parent and not d.completed and not d.goes_on
   and exists (select 1 from towpath.ended e where e.parent = :parent and not e.completed);
delete from towpath.blocked where seq = @child returning {ticket};
delete from towpath.unique_key where topic = @topic and key = @key;
insert into towpath.buried ({ticket}, buried_at) values ({ticket @}, :now);
insert into towpath.failure (seq, epoch, failed_at, kind, error)
values (@seq, @epoch, :now, :kind, :error) on conflict do nothing;
insert into towpath.ended (parent, completed) select @seq, false where @awaited
on conflict do nothing;
select @seq as seq, @epoch as epoch, @awaited as awaited;

-- name: fail_children [postgres]
with held as materialized (
    select e.parent from towpath.ended e
     where e.parent = cast(:parent as bigint) and not e.completed for update),
gone as (
    delete from towpath.blocked b using towpath.dependency d
     where exists (select from held)
       and d.parent = cast(:parent as bigint) and not d.completed and not d.goes_on
       and b.seq = d.child
    returning {ticket b}),
unkeyed as (
    delete from towpath.unique_key k using gone g where k.topic = g.topic and k.key = g.key),
buried as (
    insert into towpath.buried ({ticket}, buried_at) select {ticket}, {now} from gone order by seq),
failed as (
    insert into towpath.failure (seq, epoch, failed_at, kind, error)
    select seq, epoch, {now}, cast(:kind as text), cast(:error as text) from gone on conflict do nothing),
told as (
    insert into towpath.ended (parent, completed) select seq, false from gone where awaited
    on conflict do nothing)
select seq, epoch, awaited from gone;

-- name: some_go_on
select child from towpath.dependency where parent = :parent and goes_on limit 1;

-- name: last_failure
select f.kind, f.error from towpath.failure f where f.seq = :parent order by f.epoch desc limit 1;

-- Under the same condition as `fail_children`. A child that was noted before is returned again: the
-- process that noted it may have died then.
-- name: note_error [sqlite]
update towpath.dependency set completed = true, error = coalesce(error, :error)
 where parent = :parent and goes_on and (not completed or error is not null)
   and exists (select 1 from towpath.ended e where e.parent = :parent and not e.completed)
returning child;

-- name: note_error [postgres]
with held as materialized (
    select e.parent from towpath.ended e
     where e.parent = cast(:parent as bigint) and not e.completed for update)
update towpath.dependency set completed = true, error = coalesce(error, cast(:error as text))
 where exists (select from held)
   and parent = cast(:parent as bigint) and goes_on and (not completed or error is not null)
returning child;

-- Notes a failure; the end of a lease does this by itself.
-- name: note_failed
insert into towpath.ended (parent, completed) values (:parent, false) on conflict do nothing;

-- name: say_why
select l.id, l.topic, l.state from towpath.located l where l.seq = :parent;

-- name: forget_ended [sqlite]
delete from towpath.ended where parent = :parent and completed = :completed;

-- name: forget_ended [postgres]
delete from towpath.ended e
 using json_to_recordset(cast(:items as json)) as i(parent bigint, completed boolean)
 where e.parent = i.parent and e.completed = i.completed;

-- The jobs that failed only because of this parent: they wait again. A job with another parent that has
-- failed or is gone would never run, so it is left out; a requeue of the last such parent brings it
-- back.
-- name: children_to_revive
select b.seq, b.epoch, b.key from towpath.dependency d
  join towpath.buried b on b.seq = d.child
  join towpath.failure f on f.seq = b.seq and f.epoch = b.epoch and f.kind = 'dependency'
 where d.parent = :parent and not d.completed
   and not exists (
       select 1 from towpath.dependency o
        where o.child = b.seq and not o.completed and o.parent <> :parent
          and coalesce((select l.state from towpath.located l where l.seq = o.parent), 'gone')
              in ('gone', 'buried', 'cancelled'))
 order by b.seq;

-- name: forget_failure
delete from towpath.failure where seq = :seq and epoch = :epoch and kind = 'dependency';

-- name: children_without_it
select b.seq, b.epoch from towpath.dependency d join towpath.blocked b on b.seq = d.child
 where d.parent = :parent and d.error is not null order by b.seq;

-- name: wait_again
update towpath.dependency set completed = false, error = null
 where child = :child and parent = :parent and error is not null;

-- name: count_incomplete
select count(*) from towpath.dependency where child = :seq and not completed;
