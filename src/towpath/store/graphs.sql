-- Flows as graphs: which jobs wait or waited for which.

-- Of some jobs, what they waited for and what waits for them.
-- name: neighbours
select parent, child from (
    select d.parent, d.child from towpath.dependency d where d.child {in_items seq bigint}
     union
    select d.parent, d.child from towpath.dependency d where d.parent {in_items seq bigint}) as found
 order by child, parent limit cast(:most as bigint);

-- The last jobs of flows: they wait for others, and no job waits for them.
-- name: last_of_flows
select c.child as seq,
       (select 1 from towpath.dependency d where d.parent = c.child limit 1) is null as is_last
  from (select child from towpath.dependency
         where nth = 0 and child < coalesce(cast(:before as bigint), 9223372036854775807)
         order by child desc limit cast(:window as bigint)) as c
 order by c.child desc;

-- PostgreSQL would rather read all tickets than look up so many.
-- name: states_of_flows [sqlite]
select l.seq, l.state from towpath.located l where l.seq = :seq;

-- name: states_of_flows [postgres]
select l.seq, l.state from json_to_recordset(cast(:items as json)) as i(seq bigint),
       lateral (select seq, state from towpath.located where seq = i.seq limit 1) l;
