-- Taking away what is old.

-- A run is kept until its job has ended, which takes the results from there; the job, until its offer
-- is withdrawn.
-- name: prune [sqlite]
delete from towpath.done where seq in (
    select seq from towpath.done d where prune_at <= :now
       and not exists (select 1 from towpath.run r join towpath.offer o on o.seq = r.offer
                        where r.job = d.seq)
       and not exists (select 1 from towpath.offer o where o.seq = d.seq)
     order by prune_at limit :limit)
returning seq;
{forget};

-- name: prune [postgres]
with picked as materialized (
    select seq from towpath.done d where prune_at <= {now}
       and not exists (select from towpath.run r join towpath.offer o on o.seq = r.offer
                        where r.job = d.seq)
       and not exists (select from towpath.offer o where o.seq = d.seq)
     order by prune_at limit cast(:limit as bigint) for update skip locked),
gone as (
    delete from towpath.done d using picked p where d.seq = p.seq returning d.seq),
{forget}
select seq from gone;

-- name: finished_after
select seq from towpath.done where seq > :after order by seq limit :limit;

-- name: forget_finished [sqlite]
delete from towpath.done where seq in (
    select seq from towpath.done d where seq > :after and seq <= :upto
       and finished_at <= :now - :older_than and (:topic is null or topic = :topic)
       and (:cancelled is null or cancelled = :cancelled)
       and (:key is null or key = :key)
       and (:text is null or exists (select 1 from towpath.job j
             where j.seq = d.seq and j.payload {like} :text escape '\'))
       and not exists (select 1 from towpath.run r join towpath.offer o on o.seq = r.offer
                        where r.job = d.seq)
       and not exists (select 1 from towpath.offer o where o.seq = d.seq))
returning seq;
{forget};

-- name: forget_finished [postgres]
with picked as materialized (
    select seq from towpath.done d where seq > :after and seq <= :upto
       and finished_at <= {now} - cast(:older_than as bigint)
       and (cast(:topic as text) is null or topic = :topic)
       and (cast(:cancelled as boolean) is null or cancelled = :cancelled)
       and (cast(:key as text) is null or key = :key)
       and (cast(:text as text) is null or exists (select from towpath.job j
             where j.seq = d.seq and j.payload {like} :text escape '\'))
       and not exists (select from towpath.run r join towpath.offer o on o.seq = r.offer
                        where r.job = d.seq)
       and not exists (select from towpath.offer o where o.seq = d.seq)
     for update skip locked),
gone as (
    delete from towpath.done d using picked p where d.seq = p.seq returning d.seq),
{forget}
select seq from gone;
