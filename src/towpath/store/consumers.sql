-- Durable consumers: readers whose places are kept.

-- An attach holds the row of the channel, and so does retention: a consumer is there before the
-- low-water mark rises and is counted, or it comes after that and sees the new mark.
-- name: hold_channel
select c.id as channel, c.head, c.low, coalesce((select number from towpath.era), 0) as era
  from towpath.channel c where c.name = :channel and {alive c} {for_update of c};

-- name: place_of
select acked, generation, owner from towpath.consumer where channel = :channel and name = :name;

-- The router of webhooks does not count.
-- name: count_consumers
select count(*) from (
    select 1 from towpath.consumer where channel = :channel and not lasting limit :most) as counted;

-- name: begin_consumer
insert into towpath.consumer (channel, acked, generation, seen_at, name, owner)
values (:channel, :acked, 1, {now}, :name, :owner);

-- name: move_consumer
update towpath.consumer set acked = :acked, generation = generation + 1, seen_at = {now}
 where channel = :channel and name = :name;

-- The rows are locked in one order. For an ack without an answer `standing` tells why.
-- name: ack [sqlite]
update towpath.consumer set acked = max(acked, :seq), seen_at = :now
 where name = :name and generation = :generation and (:owner is null or owner = :owner)
   and channel = (select c.id from towpath.channel c
                   where c.name = :channel and {alive c} and c.head >= :seq
                     and (c.id = :number and :era = coalesce((select number from towpath.era), 0)
                          or :seq = 0))
returning :nth as nth, channel, acked, coalesce((select number from towpath.era), 0) as era;

-- name: ack [postgres]
with era as materialized (select coalesce((select number from towpath.era), 0) as number),
item as materialized (
    select i.*, c.id from json_to_recordset(cast(:items as json)) as i(
           nth integer, channel text, name text, generation bigint, era bigint, number bigint,
           seq bigint, owner text)
      join towpath.channel c on c.name = i.channel and {alive c}
     where c.head >= i.seq and (c.id = i.number and i.era = (select number from era) or i.seq = 0)),
held as materialized (
    select r.channel, r.name, i.nth, i.seq from towpath.consumer r
      join item i on r.channel = i.id and r.name = i.name and r.generation = i.generation
       and (i.owner is null or r.owner = i.owner)
     order by r.channel, r.name collate "C" for update of r),
moved as (
    update towpath.consumer r set acked = greatest(r.acked, h.seq), seen_at = {now}
      from (select channel, name, max(seq) as seq from held group by channel, name) as h
     where r.channel = h.channel and r.name = h.name
    returning r.channel, r.name, r.acked)
select h.nth, m.channel, m.acked, (select number from era) as era
  from held h join moved m on m.channel = h.channel and m.name = h.name;

-- PostgreSQL expects more items than there are, and would read all channels and consumers.
-- name: standing [sqlite]
select i.nth, c.id as channel, c.head, c.low, coalesce((select number from towpath.era), 0) as era,
       r.acked, r.generation, r.owner, :now - r.seen_at as silent
  from {items i(nth integer, channel text, name text)}
  left join towpath.channel c on c.name = i.channel and {alive c}
  left join towpath.consumer r on r.channel = c.id and r.name = i.name;

-- name: standing [postgres]
select i.nth, c.id as channel, c.head, c.low, coalesce((select number from towpath.era), 0) as era,
       r.acked, r.generation, r.owner, {now} - r.seen_at as silent
  from {items i(nth integer, channel text, name text)}
  left join lateral (
       select * from towpath.channel c where c.name = i.channel and {alive c} offset 0) as c on true
  left join lateral (
       select * from towpath.consumer r where r.channel = c.id and r.name = i.name offset 0) as r
    on true;

-- name: refresh
update towpath.consumer set seen_at = {now}
 where name = :name and generation = :generation
   and channel = (select id from towpath.channel where name = :channel);

-- name: list_consumers
select r.name, c.id as channel, c.head, c.low, coalesce((select number from towpath.era), 0) as era,
       r.acked, r.generation, r.owner, r.seen_at,
       case when r.lasting then 0 else {now} - r.seen_at end as silent
  from towpath.channel c join towpath.consumer r on r.channel = c.id
 where c.name = :channel and {alive c} and r.name > :after order by r.name limit :limit;

-- name: forget_consumer
delete from towpath.consumer
 where name = :name
   and channel = (select c.id from towpath.channel c where c.name = :channel and {alive c})
   and (cast(:owner as text) is null or owner = :owner)
returning channel;
