-- What becomes of the job that holds a key when another job claims it.

-- A running job goes on, but without its key.
-- name: take_key
update towpath.lease set key = null where seq = :seq and epoch = :epoch returning seq;

-- `rewritten_by` keeps the ids of the last eight enqueues that rewrote the job, the newest first.
-- name: rewrite
update towpath.job
   set payload = :payload, encoding = :encoding, ttr = :ttr, options = :options,
       priority = :priority, limit_key = :limit_key,
       rewritten_by = substr(cast(:by as text) || ' ' || coalesce(rewritten_by, ''), 1, 8 * 37)
 where seq = :seq;

-- Reads all jobs of the key, but only after an answer was lost.
-- name: rewritten_before
select id from towpath.job
 where topic = :topic and key = :key and rewritten_by like '%' || cast(:by as text) || '%'
 order by seq desc limit 1;

-- Leaves out the new job itself: after a lost answer it may be stored and finished already.
-- name: forget_finished [sqlite]
select j.seq from towpath.job j where j.topic = :topic and j.key = :key and j.id <> :id
   and (exists (select 1 from towpath.done d where d.seq = j.seq)
        or exists (select 1 from towpath.buried b where b.seq = j.seq));
delete from towpath.done where seq = @seq;
delete from towpath.buried where seq = @seq;
{forget};

-- name: forget_finished [postgres]
with found as materialized (
    select j.seq from towpath.job j where j.topic = :topic and j.key = :key and j.id <> :id),
done as (
    delete from towpath.done d using found f where d.seq = f.seq returning d.seq),
buried as (
    delete from towpath.buried b using found f where b.seq = f.seq returning b.seq),
gone as (select seq from done union all select seq from buried),
{forget}
select seq from gone;
