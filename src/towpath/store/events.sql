-- The log. A publish holds the row of its channel, so numbers are dense and follow the order of
-- commits; a reader that knows a number has missed nothing before it.

-- The usual case in one statement: channels that are open, for which nothing is posted, that do not
-- expire, and whose media type is written as the caller writes it. A channel that is not answered for is
-- left to `hold` and what follows. PostgreSQL locks the rows in one order,
-- and reads `head` after the wait; an update alone would lock in any order.
-- name: publish [sqlite]
update towpath.channel set head = head + 1, bytes = bytes + :size
 where name = :name and closed_at is null and (:media is null or media = :media)
   and not exists (select 1 from towpath.posted p where p.name = :name)
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
       and not exists (select from towpath.posted p where p.name = c.name)
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

-- What is asked under these rows is asked by a later statement: PostgreSQL then sees all that was
-- committed while this one waited.
-- name: hold
select c.id, c.name, c.head, c.closed_at, c.ended, c.media, c.order_key, c.source, c.fork_at,
       (select l.ttl from towpath.lifetime l where l.channel = c.id) as ttl,
       (select l.expires_at from towpath.lifetime l where l.channel = c.id) as expires_at,
       {now} as now, coalesce((select number from towpath.era), 0) as era
  from towpath.channel c
 where c.name {in_items name text}
 order by c.id {for_update of c};

-- name: waiting
select no, name, id, type, key, headers, encoding, body, size
  from towpath.posted where name {in_items name text} order by no;

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

-- Their names are free at once; their events go later, some at a time.
-- name: retire [sqlite]
delete from towpath.lifetime where channel = :channel;
update towpath.channel set name = null, closed_at = coalesce(closed_at, :now) where id = :channel;

-- name: retire [postgres]
with over as (delete from towpath.lifetime where channel {in_items channel bigint})
update towpath.channel set name = null, closed_at = coalesce(closed_at, {now})
 where id {in_items channel bigint};

-- name: forget_posted
delete from towpath.posted where no {in_items no bigint};

-- Locks no row that others want: a caller's transaction may stay open as long as it likes.
-- name: post [sqlite]
insert into towpath.posted (at, size, name, id, type, key, headers, encoding, body)
select :now, :size, :name, :id, :type, :key, :headers, :encoding, :body
 where not exists (select 1 from towpath.channel where name = :name and closed_at is not null)
returning at;

-- name: post [postgres]
with clock as materialized (select {now} as now),
posted as (
    insert into towpath.posted (at, size, name, id, type, key, headers, encoding, body)
    select now, size, name, id, type, key, headers, encoding, body
      from clock, json_to_recordset(cast(:items as json)) as i(
           place integer, size bigint, name text, id uuid, type text, key text, headers text,
           encoding text, body text)
     where (select c.closed_at from towpath.channel c where c.name = i.name) is null
     order by place
    returning at)
select at from posted;

-- The channel and its events by one statement, so by one snapshot: what is deleted beside it is seen
-- whole or not at all. The sizes are summed before a body is read.
-- name: read [sqlite]
select :nth as nth, c.id as channel, c.head, c.low, c.ended, c.media, c.fork_at, l.ttl, l.expires_at,
       :now as now, coalesce((select number from towpath.era), 0) as era,
       exists (select 1 from towpath.posted p where p.name = :name) as posted,
       e.seq, e.at, e.id, e.type, e.key, e.headers, e.encoding, e.body, e.size
  from (select 1)
  left join towpath.channel c on c.name = :name and {alive c}
  left join towpath.lifetime l on l.channel = c.id
  left join (
       select seq, sum(size) over (order by seq) - size as before
         from (select e.seq, e.size
                 from towpath.channel n cross join towpath.event e on e.channel = n.id
                where n.name = :name and e.seq > max(:after, n.low)
                order by e.seq limit :most)) as s on s.before < :most_bytes and c.id is not null
  left join towpath.event e on e.channel = c.id and e.seq = s.seq
 order by e.seq;

-- Without `in_items` PostgreSQL may read all channels to join them by a hash: it expects more items than
-- there are.
-- name: read [postgres]
select i.nth, c.id as channel, c.head, c.low, c.ended, c.media, c.fork_at,
       (select l.ttl from towpath.lifetime l where l.channel = c.id) as ttl,
       (select l.expires_at from towpath.lifetime l where l.channel = c.id) as expires_at,
       {now} as now, coalesce((select number from towpath.era), 0) as era,
       exists (select from towpath.posted p where p.name = i.name) as posted,
       e.seq, e.at, e.id, e.type, e.key, e.headers, e.encoding, e.body, e.size
  from json_to_recordset(cast(:items as json)) as i(
       nth integer, name text, after bigint, most integer, most_bytes bigint)
  left join towpath.channel c on c.name = i.name and c.name {in_items name text} and {alive c}
  left join lateral (
       select max(s.seq) as seq from (
           select n.seq, sum(n.size) over (order by n.seq) - n.size as before
             from (select n.seq, n.size from towpath.event n
                    where n.channel = c.id and n.seq > greatest(i.after, c.low)
                    order by n.seq limit i.most) as n) as s
        where s.before < i.most_bytes) as last on true
  left join lateral (
       select e.* from towpath.event e
        where e.channel = c.id and e.seq > greatest(i.after, c.low) and e.seq <= last.seq
        order by e.seq) as e on true
 order by i.nth, e.seq;

-- A fork from before its own events. Its line is the fork, its source, the source of that and so on:
-- each has the events behind `since` and up to `upto`.
-- name: read_fork
with recursive line as (
    select c.id, c.source, coalesce(c.fork_at, 0) as since, c.low,
           cast(9223372036854775807 as bigint) as upto
      from towpath.channel c where c.name = :name and {alive c}
    union all
    select s.id, s.source, coalesce(s.fork_at, 0), s.low,
           case when l.since < l.upto then l.since else l.upto end
      from line l join towpath.channel s on s.id = l.source),
edge as (select max(case when low < upto then low else upto end) as low from line),
beginning as (
    select case when low > cast(:after as bigint) then low else cast(:after as bigint) end as seq
      from edge),
span as (
    select l.id, l.upto, case when l.since > b.seq then l.since else b.seq end as since
      from line l cross join beginning b),
picked as (
    select e.channel, e.seq, e.size
      from span s cross join towpath.event e
     where e.channel = s.id and e.seq > s.since and e.seq <= s.upto
     order by e.seq limit :most),
sized as (select channel, seq, sum(size) over (order by seq) - size as before from picked)
select coalesce((select upto from line where id = :channel), -1) as upto,
       c.id as channel, c.head, b.low, c.ended, c.media, c.fork_at, l.ttl, l.expires_at,
       {now} as now, coalesce((select number from towpath.era), 0) as era,
       exists (select 1 from towpath.posted p where p.name = :name) as posted,
       e.seq, e.at, e.id, e.type, e.key, e.headers, e.encoding, e.body, e.size
  from towpath.channel c
 cross join edge b
  left join towpath.lifetime l on l.channel = c.id
  left join sized s on s.before < :most_bytes
  left join towpath.event e on e.channel = s.channel and e.seq = s.seq
 where c.name = :name and {alive c} order by e.seq;

-- Jobs whose streams have no channel: they have said nothing, or are gone.
-- name: states_of [sqlite]
select :id as id, state,
       exists (select 1 from towpath.failure f
                where f.seq = l.seq and f.epoch = l.epoch and f.kind = 'expired') as expired
  from towpath.located l where id = :id;

-- name: states_of [postgres]
select i.id, l.state,
       exists (select from towpath.failure f
                where f.seq = l.seq and f.epoch = l.epoch and f.kind = 'expired') as expired
  from json_to_recordset(cast(:items as json)) as i(id uuid),
       lateral (select * from towpath.located where id = i.id limit 1) l;
