-- The log. A publish holds the row of its channel, so numbers are dense and follow the order of
-- commits; a reader that knows a number has missed nothing before it.

-- The usual case in one statement: channels that are open, do not expire, have nothing posted, and whose
-- media type is written as the caller writes it. For other channels it returns nothing, and `hold` and
-- what follows add the events. PostgreSQL locks the rows in one order and reads `head` after the wait;
-- an update alone would lock in any order.
-- name: publish [sqlite]
update towpath.channel set head = head + 1, bytes = bytes + :size
 where name = :name and closed_at is null and (:media is null or media = :media)
   and not {posted :name}
   and not exists (select 1 from towpath.lifetime l
                    where l.channel = towpath.channel.id and l.expires_at is not null)
returning :nth as nth, id as channel, head as seq, :now as at,
          coalesce((select number from towpath.era), 0) as era;
insert into towpath.event (channel, seq, at, size, id, type, headers, encoding, body)
values (@channel, @seq, :now, :size, :id, :type, :headers, :encoding, :body);

-- name: publish [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           nth integer, place integer, name text, media text, size bigint, id uuid, type text,
           headers text, encoding text, body text)),
held as materialized (
    select c.id, c.name, c.head, c.media from towpath.channel c
     where c.name = any(array(select name from item)) and c.closed_at is null
       and not {posted c.name}
       and not exists (
           select from towpath.lifetime l where l.channel = c.id and l.expires_at is not null)
     order by c.id for update),
numbered as materialized (
    select i.*, h.id as channel,
           h.head + row_number() over (partition by h.id order by i.place) as seq
      from item i join held h on h.name = i.name and coalesce(i.media, h.media) = h.media),
raised as (
    update towpath.channel c set head = n.head, bytes = c.bytes + n.size
      from (select channel, max(seq) as head, sum(size) as size from numbered group by channel) as n
     where c.id = n.channel),
inserted as (
    insert into towpath.event (channel, seq, at, size, id, type, headers, encoding, body)
    select channel, seq, now, size, id, type, headers, encoding, body from numbered, clock)
select nth, channel, seq, now as at,
       coalesce((select number from towpath.era), 0) as era
  from numbered, clock order by place;

-- name: open_channels [sqlite]
insert into towpath.channel (name, created_at) values (:name, :now) on conflict do nothing;

-- name: open_channels [postgres]
insert into towpath.channel (name, created_at)
select i.name, {now} from json_to_recordset(cast(:items as json)) as i(name text)
 where not exists (select from towpath.channel c where c.name = i.name)
 order by i.name collate "C"
on conflict do nothing;

-- Locks the rows of channels. Later statements read the rest: on PostgreSQL only a new statement sees
-- what was committed while this one waited.
-- name: hold
select c.id, c.name, c.head, c.closed_at, c.ended, c.media, c.order_key, c.source, c.fork_at,
       (select l.ttl from towpath.lifetime l where l.channel = c.id) as ttl,
       (select l.expires_at from towpath.lifetime l where l.channel = c.id) as expires_at,
       {now} as now, coalesce((select number from towpath.era), 0) as era
  from towpath.channel c
 where c.name {in_items name text}
 order by c.id {for_update of c};

-- name: waiting [sqlite]
select no, name, id, type, key, headers, encoding, body, size
  from towpath.posted where name = :name order by no limit :most;

-- name: waiting [postgres]
select p.no, p.name, p.id, p.type, p.key, p.headers, p.encoding, p.body, p.size
  from json_to_recordset(cast(:items as json)) as i(name text, most bigint),
       lateral (select * from towpath.posted where name = i.name order by no limit i.most) as p;

-- name: keyed
select e.channel, e.seq, e.at, e.id, e.type, e.key, e.headers, e.encoding, e.body, e.size
  from {items i(channel bigint, key text)}
 cross join towpath.event e where e.channel = i.channel and e.key = i.key;

-- name: producers
select p.channel, p.name, p.epoch, p.said
  from {items i(channel bigint, name text)}
 cross join towpath.producer p where p.channel = i.channel and p.name = i.name;

-- name: newest
select seq, at, id from towpath.event
 where channel = :channel and seq < :before order by seq desc limit :limit;

-- name: append [sqlite]
insert into towpath.event (channel, seq, at, size, id, type, key, headers, encoding, body)
values (:channel, :seq, :at, :size, :id, :type, :key, :headers, :encoding, :body);

-- name: append [postgres]
insert into towpath.event (channel, seq, at, size, id, type, key, headers, encoding, body)
select channel, seq, at, size, id, type, key, headers, encoding, body
  from json_to_recordset(cast(:items as json)) as i(
       channel bigint, seq bigint, at bigint, size bigint, id uuid, type text, key text, headers text,
       encoding text, body text);

-- name: raise_heads [sqlite]
update towpath.channel
   set head = :head, bytes = bytes + :size,
       closed_at = case when :ended is null then closed_at else :now end,
       ended = coalesce(:ended, ended), order_key = :order_key
 where id = :channel;

-- name: raise_heads [postgres]
update towpath.channel c
   set head = i.head, bytes = c.bytes + i.size,
       closed_at = case when i.ended is null then c.closed_at else {now} end,
       ended = coalesce(i.ended, c.ended), order_key = i.order_key
  from json_to_recordset(cast(:items as json)) as i(
       channel bigint, head bigint, size bigint, ended text, order_key text)
 where c.id = i.channel and c.id {in_items channel bigint};

-- name: note_producers [sqlite]
insert into towpath.producer (channel, epoch, said, name) values (:channel, :epoch, :said, :name)
on conflict (channel, name) do update set epoch = excluded.epoch, said = excluded.said;

-- name: note_producers [postgres]
insert into towpath.producer (channel, epoch, said, name)
select channel, epoch, said, name from json_to_recordset(cast(:items as json)) as i(
       channel bigint, epoch bigint, said bigint, name text)
on conflict (channel, name) do update set epoch = excluded.epoch, said = excluded.said;

-- name: renew
update towpath.lifetime set expires_at = {now} + ttl
 where ttl is not null and channel {in_items channel bigint};

-- The names are free at once. Upkeep deletes the events later, some at a time; until then the other
-- limits stay, for the forks that read these events.
-- name: retire [sqlite]
update towpath.lifetime set ttl = null, expires_at = null where channel = :channel;
update towpath.channel set name = null, closed_at = coalesce(closed_at, :now) where id = :channel;

-- name: retire [postgres]
with over as (
    update towpath.lifetime set ttl = null, expires_at = null where channel {in_items channel bigint})
update towpath.channel set name = null, closed_at = coalesce(closed_at, {now})
 where id {in_items channel bigint};

-- name: forget_posted
delete from towpath.posted where no {in_items no bigint};

-- Locks no row that another transaction needs, so the transaction of a caller may stay open for long.
-- name: post [sqlite]
insert into towpath.posted (at, size, name, id, type, key, headers, encoding, body)
select :now, :size, :name, :id, :type, :key, :headers, :encoding, :body
 where not exists (select 1 from towpath.channel c
                    where c.name = :name and c.closed_at is not null and {alive c})
returning at;

-- name: post [postgres]
with clock as materialized (select {now} as now),
posted as (
    insert into towpath.posted (at, size, name, id, type, key, headers, encoding, body)
    select now, size, name, id, type, key, headers, encoding, body
      from clock, json_to_recordset(cast(:items as json)) as i(
           place integer, size bigint, name text, id uuid, type text, key text, headers text,
           encoding text, body text)
     where (select c.closed_at from towpath.channel c where c.name = i.name and {alive c}) is null
     order by place
    returning at)
select at from posted;
