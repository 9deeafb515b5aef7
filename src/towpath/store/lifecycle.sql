-- What lifecycle events tell of jobs.

-- name: named
select j.seq, j.id, j.topic, j.options,
       (select o.id from towpath.run r join towpath.job o on o.seq = r.offer where r.job = j.seq) as run_of
  from towpath.job j where j.seq {in_items seq bigint};
