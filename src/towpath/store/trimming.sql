-- What channels keep, and the end of what they do not.

-- name: set_limits
insert into towpath.lifetime (channel, max_age, max_bytes, max_count, drop_acked)
values (:channel, :max_age, :max_bytes, :max_count, :drop_acked)
on conflict (channel) do update
   set max_age = excluded.max_age, max_bytes = excluded.max_bytes,
       max_count = excluded.max_count, drop_acked = excluded.drop_acked;

-- Some channels in turn: those that may have limits, by an index without the streams of jobs, and those
-- that were deleted, as others may be forked from them; so the number of rows is bounded. Of each channel
-- it looks at the oldest event, which a fork may have from a channel up its line, and whether one of its
-- own is left below the low-water mark. Each database may answer
-- an `exists` or a join by reading a whole table once, so there is neither.
-- name: visit
with picked as (
    select * from (
        select * from (
            select id, name, head, low, bytes, source, fork_at from towpath.channel
             where id > :after and job is null and name is not null order by id limit :limit) as named
        union all
        select * from (
            select id, name, head, low, bytes, source, fork_at from towpath.channel
             where id > :after and name is null order by id limit :limit) as deleted) as found
     order by id limit :limit)
select c.id, c.name,
       (select 1 from towpath.channel f where f.source = c.id limit 1) is not null as is_source,
       c.head, c.low, c.bytes, {now} as now,
       (select l.max_age from towpath.lifetime l where l.channel = c.id) as max_age,
       (select l.max_bytes from towpath.lifetime l where l.channel = c.id) as max_bytes,
       (select l.max_count from towpath.lifetime l where l.channel = c.id) as max_count,
       case when (select l.drop_acked from towpath.lifetime l where l.channel = c.id) then (
            select min(r.acked) from towpath.consumer r
             where r.channel = c.id and (r.lasting or r.seen_at >= {now} - cast(:ttl as bigint))) end as acked,
       (select e.at from towpath.event e
         where e.channel = (
                with recursive line as (
                    select c.id as channel, c.source, coalesce(c.fork_at, 0) as since
                    union all
                    select s.id, s.source, coalesce(s.fork_at, 0)
                      from line l join towpath.channel s on s.id = l.source where l.since > c.low)
                select l.channel from line l where l.since <= c.low)
           and e.seq > c.low order by e.seq limit 1) as oldest_at,
       (select 1 from towpath.event e
         where e.channel = c.id and e.seq <= c.low limit 1) is not null as is_left
  from picked c order by c.id;

-- What follows is asked by later statements, which see all that was committed during the wait.
-- name: hold_to_trim
select c.id, c.name, c.head, c.low, c.bytes, {now} as now
  from towpath.channel c where c.id = :channel and (c.job is null or c.name is null)
   {for_update of c};

-- name: limits_of
select l.max_age, l.max_bytes, l.max_count, l.drop_acked,
       case when l.drop_acked then (
            select min(r.acked) from towpath.consumer r
             where r.channel = :channel and (r.lasting or r.seen_at >= {now} - cast(:ttl as bigint))) end as acked,
       exists (select 1 from towpath.channel f where f.source = :channel) as is_source
  from (select 1) as one left join towpath.lifetime l on l.channel = :channel;

-- A fork has its oldest events from up its line, as in `read_fork`; these are none of its bytes. Numbers
-- have no holes, so the first events are those up to `low + limit`.
-- name: oldest
with recursive line as (
    select c.id, c.source, coalesce(c.fork_at, 0) as since, cast(:low as bigint) + cast(:limit as bigint) as upto
      from towpath.channel c where c.id = :channel
    union all
    select s.id, s.source, coalesce(s.fork_at, 0), case when l.since < l.upto then l.since else l.upto end
      from line l join towpath.channel s on s.id = l.source where l.since > :low)
select e.seq, e.at, case when e.channel = :channel then e.size else 0 end as size
  from line l cross join towpath.event e
 where e.channel = l.id and e.seq > l.since and e.seq > :low and e.seq <= l.upto
 order by e.seq;

-- name: raise_low
update towpath.channel set low = :low, bytes = bytes - :size where id = :channel;

-- The forks of a channel, their forks and so on: what they have from it is gone from them, too. Each has
-- a greater number than its source, and rows are locked in this order.
-- name: raise_forks [sqlite]
with recursive line(id, low) as (
    select f.id, min(:low, f.fork_at) from towpath.channel f where f.source = :channel
    union all
    select f.id, min(l.low, f.fork_at) from line l join towpath.channel f on f.source = l.id)
update towpath.channel
   set low = (select l.low from line l where l.id = towpath.channel.id)
 where id in (select id from line)
   and low < (select l.low from line l where l.id = towpath.channel.id);

-- name: raise_forks [postgres]
with recursive line(id, low) as (
    select f.id, least(cast(:low as bigint), f.fork_at) from towpath.channel f where f.source = :channel
    union all
    select f.id, least(l.low, f.fork_at) from line l join towpath.channel f on f.source = l.id),
held as materialized (
    select c.id, l.low from line l join towpath.channel c on c.id = l.id
     where c.low < l.low order by c.id for update of c)
update towpath.channel c set low = h.low from held h where c.id = h.id;

-- name: drop_below
delete from towpath.event where channel = :channel and seq {in
    select seq from towpath.event where channel = :channel and seq <= :low
     order by seq limit :limit}
returning seq;
