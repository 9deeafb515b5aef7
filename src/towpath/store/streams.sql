-- The streams of jobs: what a run says, under its lease and in order.

-- The lease is held until the words are written, so that nothing is said for a job that was taken
-- back. The end of a job locks in the same order: the lease, then the channel.
-- name: hold_leases [sqlite]
select l.seq, l.epoch, l.cancelled, l.streamed, j.id
  from {items i(seq bigint, epoch bigint)}
 cross join towpath.lease l on l.seq = i.seq and l.epoch = i.epoch
 cross join towpath.job j on j.seq = l.seq;

-- name: hold_leases [postgres]
with item as materialized (
    select distinct seq, epoch from {items i(seq bigint, epoch bigint)})
select l.seq, l.epoch, l.cancelled, l.streamed,
       (select j.id from towpath.job j where j.seq = l.seq) as id
  from towpath.lease l
 where l.seq = any(array(select seq from item))
   and ((l.seq, l.epoch) in (select seq, epoch from item)) is true
 order by l.seq for key share;

-- What speaks and then ends the lease holds it alone from the beginning: a speaker that shares the lease
-- and waits for the channel would wait in a circle with the end.
-- name: hold_ending
select l.seq from towpath.lease l where l.seq = :seq and l.epoch = :epoch {for_update of l};

-- name: open_streams [sqlite]
insert into towpath.channel (name, job, created_at) values (:name, :seq, :now)
on conflict do nothing;

-- name: open_streams [postgres]
insert into towpath.channel (name, job, created_at)
select i.name, i.seq, {now} from {items i(name text, seq bigint)}
 order by i.name collate "C"
on conflict do nothing;

-- name: hold_streams
select c.id, c.name, c.head, c.epoch, c.said, c.closed_at, {now} as now
  from towpath.channel c where c.name {in_items name text}
 order by c.id {for_update of c};

-- How the last try that has said something ended.
-- name: last_failures
select i.seq, f.kind from {items i(seq bigint, epoch bigint)}
 cross join towpath.failure f where f.seq = i.seq and f.epoch = i.epoch;

-- name: raise_streams [sqlite]
update towpath.channel
   set head = head + :added, bytes = bytes + :size, epoch = :epoch, said = :said
 where id = :channel;

-- name: raise_streams [postgres]
update towpath.channel c
   set head = c.head + i.added, bytes = c.bytes + i.size, epoch = i.epoch, said = i.said
  from {items i(channel bigint, added bigint, size bigint, epoch bigint, said bigint)}
 where c.id {in_items channel bigint} and c.id = i.channel;

-- name: mark_streamed
update towpath.lease set streamed = true where seq {in_items seq bigint};

-- Ends the stream of a job that has ended and was not put back in line since. A stream whose last try
-- has said nothing is left to `end_with_try`.
-- name: end_stream
update towpath.channel set closed_at = {now}, ended = :ended
 where job = :seq and closed_at is null and coalesce(epoch, :epoch) = :epoch
   and (exists (select 1 from towpath.done d where d.seq = :seq)
        or exists (select 1 from towpath.buried b where b.seq = :seq))
returning name;

-- How the try ended that has spoken last, in a stream that is open.
-- name: last_spoken
select f.kind from towpath.channel c
  left join towpath.failure f on f.seq = c.job and f.epoch = c.epoch
 where c.job = :seq and c.closed_at is null;

-- The same as end_stream for a job whose last try has said nothing: the try is the last event.
-- name: end_with_try [sqlite]
update towpath.channel
   set closed_at = :now, ended = :ended, head = head + 1, bytes = bytes + :size, epoch = :epoch, said = 0
 where job = :seq and closed_at is null and epoch <> :epoch
   and (exists (select 1 from towpath.done d where d.seq = :seq)
        or exists (select 1 from towpath.buried b where b.seq = :seq))
returning id as channel, head, name;
insert into towpath.event (channel, seq, at, size, id, type, encoding, body)
values (@channel, @head, :now, :size, :id, :type, :encoding, :body);
select @name as name;

-- name: end_with_try [postgres]
with ended as (
    update towpath.channel
       set closed_at = {now}, ended = :ended, head = head + 1, bytes = bytes + :size, epoch = :epoch,
           said = 0
     where job = :seq and closed_at is null and epoch <> :epoch
       and (exists (select 1 from towpath.done d where d.seq = :seq)
            or exists (select 1 from towpath.buried b where b.seq = :seq))
    returning id, head, name),
announced as (
    insert into towpath.event (channel, seq, at, size, id, type, encoding, body)
    select id, head, {now}, :size, cast(:id as uuid), :type, :encoding, :body from ended)
select name from ended;

-- A job that begins again leaves its old stream: the channel loses its name, and its events go later.
-- name: leave_stream
update towpath.channel set name = null, closed_at = coalesce(closed_at, {now})
 where job = :seq and name is not null;

-- name: open_after
select job from towpath.channel
 where job > :after and job is not null and closed_at is null
 order by job limit :limit;

-- Of these jobs those that have ended, or are gone.
-- name: over
select seq, coalesce(done, buried) as state, epoch from (
    select i.seq,
           (select case when d.cancelled then 'cancelled' else 'completed' end
              from towpath.done d where d.seq = i.seq) as done,
           (select 'buried' from towpath.buried b where b.seq = i.seq) as buried,
           coalesce((select d.epoch from towpath.done d where d.seq = i.seq),
                    (select b.epoch from towpath.buried b where b.seq = i.seq)) as epoch,
           (select j.seq from towpath.job j where j.seq = i.seq) as job
      from {items i(seq bigint)}) as found
 where done is not null or buried is not null or job is null;
