-- Taking away what is old.

-- name: clock
select {now};

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
delete from towpath.failure where seq = :seq;
delete from towpath.dependency where child = :seq;
delete from towpath.run where offer = :seq;
delete from towpath.note where seq = :seq;
delete from towpath.job where seq = :seq;

-- name: prune [postgres]
with picked as materialized (
    select seq from towpath.done d where prune_at <= {now}
       and not exists (select from towpath.run r join towpath.offer o on o.seq = r.offer
                        where r.job = d.seq)
       and not exists (select from towpath.offer o where o.seq = d.seq)
     order by prune_at limit cast(:limit as bigint) for update skip locked),
gone as (
    delete from towpath.done d using picked p where d.seq = p.seq returning d.seq),
forgotten as (
    delete from towpath.failure f using gone g where f.seq = g.seq),
unlinked as (
    delete from towpath.dependency d using gone g where d.child = g.seq),
unrun as (
    delete from towpath.run r using gone g where r.offer = g.seq),
unsaid as (
    delete from towpath.note n using gone g where n.seq = g.seq),
deleted as (
    delete from towpath.job j using gone g where j.seq = g.seq)
select seq from gone;
