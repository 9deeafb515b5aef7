-- Channels as wholes: where they stand, which there are, and their end.

-- Without `in_items` PostgreSQL may read all channels, as it expects more items than there are.
-- name: heads
select i.name, c.id as channel, c.head, c.low, c.ended,
       coalesce((select number from towpath.era), 0) as era,
       {posted i.name} as posted
  from {items i(name text)}
  left join towpath.channel c on c.name = i.name and c.name {in_items name text} and {alive c};

-- name: list_channels
select c.name, c.id as channel, c.head, c.low, c.bytes, c.created_at, c.ended,
       coalesce((select number from towpath.era), 0) as era
  from towpath.channel c
 where c.name > :after and c.name >= :first and c.name < :beyond and {alive c}
   and (c.ended is null or c.ended <> :gone)
 order by c.name limit :limit;

-- How many channels there are, up to a number; none if this one is there.
-- name: others
select case when exists (select 1 from towpath.channel c where c.name = :name and {alive c}) then 0
       else (select count(*) from (
                 select 1 from towpath.channel c
                  where c.name is not null and c.name <> :system and c.job is null limit :most) as counted)
       end;

-- name: renew
update towpath.lifetime set expires_at = {now} + ttl
 where ttl is not null and expires_at > {now}
   and channel in (select c.id from towpath.channel c where c.name {in_items name text});

-- name: forks
select id from towpath.channel where source = :channel and name is not null limit 1;

-- name: forget_posted_of
delete from towpath.posted where name = :name returning no;

-- Its events go later, some at a time. What is posted for it goes with it.
-- name: delete_channel [sqlite]
delete from towpath.posted where name = :name;
update towpath.channel set name = null, closed_at = coalesce(closed_at, :now) where id = :channel;

-- name: delete_channel [postgres]
with forgotten as (delete from towpath.posted where name = :name)
update towpath.channel set name = null, closed_at = coalesce(closed_at, {now}) where id = :channel;

-- name: keep_for_forks [sqlite]
delete from towpath.posted where name = :name;
update towpath.lifetime set ttl = null, expires_at = null where channel = :channel;
update towpath.channel set ended = :ended, closed_at = coalesce(closed_at, :now) where id = :channel;

-- name: keep_for_forks [postgres]
with forgotten as (delete from towpath.posted where name = :name),
unlimited as (update towpath.lifetime set ttl = null, expires_at = null where channel = :channel)
update towpath.channel set ended = :ended, closed_at = coalesce(closed_at, {now}) where id = :channel;

-- name: free_name
update towpath.channel set name = null
 where id = :channel and ended = :ended and name is not null
   and not exists (select 1 from towpath.channel f where f.source = :channel and f.name is not null)
returning source;

-- name: expired
select c.name from towpath.lifetime l join towpath.channel c on c.id = l.channel
 where l.expires_at <= {now} and c.name is not null limit :limit;

-- Deleted channels without forks: a fork still reads the events of its source.
-- name: deleted_channels
select c.id as channel, c.source from towpath.channel c
 where c.name is null and not exists (select 1 from towpath.channel f where f.source = c.id)
 order by c.id limit :limit;

-- name: drop_events [sqlite]
delete from towpath.event where (channel, seq) in (
    select e.channel, e.seq from {items i(channel bigint)}
     cross join towpath.event e on e.channel = i.channel limit :limit)
returning seq;

-- name: drop_events [postgres]
delete from towpath.event where ctid = any(array(
    select e.tid from {items i(channel bigint)} cross join lateral (
        select ctid as tid from towpath.event where channel = i.channel
         order by seq limit cast(:limit as bigint)) e
     limit cast(:limit as bigint)))
returning seq;

-- Those that have no events any more.
-- name: drop_channels [sqlite]
delete from towpath.producer where channel {in_items channel bigint};
delete from towpath.consumer where channel {in_items channel bigint};
delete from towpath.lifetime where channel {in_items channel bigint};
delete from towpath.channel where id {in_items channel bigint} and name is null
   and not exists (select 1 from towpath.event e where e.channel = towpath.channel.id);

-- name: drop_channels [postgres]
with producers as (delete from towpath.producer where channel {in_items channel bigint}),
consumers as (delete from towpath.consumer where channel {in_items channel bigint}),
lifetimes as (delete from towpath.lifetime where channel {in_items channel bigint})
delete from towpath.channel c where c.id {in_items channel bigint} and c.name is null
   and (select 1 from towpath.event e where e.channel = c.id limit 1) is null;

-- From name to name by the index, however many events each has.
-- name: posted_names
with recursive found(name) as (
    select min(name) from towpath.posted
    union all
    select (select min(p.name) from towpath.posted p where p.name > found.name) from found
     where found.name is not null)
select name from found where name is not null limit :limit;

-- name: raise_era
insert into towpath.era as e (id, number) values (1, 1)
on conflict (id) do update set number = e.number + 1
returning number;

-- name: time_of
with recursive line as (
    select id, source, coalesce(fork_at, 0) as since from towpath.channel where id = :channel
    union all
    select s.id, s.source, coalesce(s.fork_at, 0)
      from line l join towpath.channel s on s.id = l.source where l.since >= :seq)
select e.at from line l join towpath.event e on e.channel = l.id and e.seq = :seq
 where l.since < :seq;
