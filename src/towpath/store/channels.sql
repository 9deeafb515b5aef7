-- Channels as wholes: where they stand, which there are, and their end.

-- Without `in_items` PostgreSQL may read all channels, as it expects more items than there are.
-- name: heads
select i.name, c.id as channel, c.head, c.low, c.ended,
       coalesce((select number from towpath.era), 0) as era,
       exists (select 1 from towpath.posted p where p.name = i.name) as posted
  from {items i(name text)}
  left join towpath.channel c on c.name = i.name and c.name {in_items name text};

-- name: list_channels
select c.name, c.id as channel, c.head, c.low, c.bytes, c.created_at, c.ended,
       coalesce((select number from towpath.era), 0) as era
  from towpath.channel c
 where c.name > :after and c.name >= :first and c.name < :beyond order by c.name limit :limit;

-- Its events go later, some at a time.
-- name: delete_channel
update towpath.channel set name = null, closed_at = coalesce(closed_at, {now}) where name = :name
returning id;

-- name: forget_posted_of
delete from towpath.posted where name = :name returning no;

-- name: deleted_channels
select id from towpath.channel where name is null order by id limit :limit;

-- name: drop_events [sqlite]
delete from towpath.event where channel = :channel and seq in (
    select seq from towpath.event where channel = :channel order by seq limit :limit)
returning seq;

-- name: drop_events [postgres]
delete from towpath.event where channel = :channel and seq = any(array(
    select seq from towpath.event where channel = :channel order by seq limit :limit))
returning seq;

-- name: drop_channel [sqlite]
delete from towpath.producer where channel = :channel;
delete from towpath.consumer where channel = :channel;
delete from towpath.lifetime where channel = :channel;
delete from towpath.channel where id = :channel and name is null;

-- name: drop_channel [postgres]
with producers as (delete from towpath.producer where channel = :channel),
consumers as (delete from towpath.consumer where channel = :channel),
lifetimes as (delete from towpath.lifetime where channel = :channel)
delete from towpath.channel where id = :channel and name is null;

-- name: posted_names
select distinct name from towpath.posted order by name limit :limit;

-- name: raise_era
insert into towpath.era as e (id, number) values (1, 1)
on conflict (id) do update set number = e.number + 1
returning number;

-- name: time_of
select at from towpath.event where channel = :channel and seq = :seq;
