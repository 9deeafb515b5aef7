-- The log. A publish holds the row of its channel, so numbers are dense and follow the order of
-- commits; a reader that knows a number has missed nothing before it.

-- The usual case in one statement: channels that are open and for which nothing is posted. A channel
-- that is not answered for is left to `hold` and what follows. PostgreSQL locks the rows in one order,
-- and reads `head` after the wait; an update alone would lock in any order.
-- name: publish [sqlite]
update towpath.channel set head = head + 1, bytes = bytes + :size
 where name = :name and closed_at is null
   and not exists (select 1 from towpath.posted p where p.name = :name)
returning :nth as nth, id as channel, head as seq, :now as at,
          coalesce((select number from towpath.era), 0) as era;
insert into towpath.event (channel, seq, at, size, id, type, headers, encoding, body)
values (@channel, @seq, :now, :size, :id, :type, :headers, :encoding, :body);

-- name: publish [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           nth integer, place integer, name text, size bigint, id uuid, type text, headers text,
           encoding text, body text)),
held as materialized (
    select c.id, c.name, c.head from towpath.channel c
     where c.name = any(array(select name from item)) and c.closed_at is null
       and not exists (select from towpath.posted p where p.name = c.name)
     order by c.id for update),
numbered as materialized (
    select i.*, h.id as channel,
           h.head + row_number() over (partition by h.id order by i.place) as seq
      from item i join held h on h.name = i.name),
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
select c.id, c.name, c.head, c.closed_at, {now} as now,
       coalesce((select number from towpath.era), 0) as era
  from towpath.channel c where c.name {in_items name text}
 order by c.id {for_update of c};

-- name: waiting
select no, name, id, type, key, headers, encoding, body, size
  from towpath.posted where name {in_items name text} order by no;

-- name: keyed
select e.channel, e.seq, e.at, e.id, e.type, e.key, e.headers, e.encoding, e.body, e.size
  from {items i(channel bigint, key text)}
 cross join towpath.event e where e.channel = i.channel and e.key = i.key;

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
       ended = coalesce(:ended, ended)
 where id = :channel;

-- name: raise_heads [postgres]
update towpath.channel c
   set head = i.head, bytes = c.bytes + i.size,
       closed_at = case when i.ended is null then c.closed_at else {now} end,
       ended = coalesce(i.ended, c.ended)
  from json_to_recordset(cast(:items as json)) as i(
       channel bigint, head bigint, size bigint, ended text)
 where c.id = i.channel and c.id {in_items channel bigint};

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
     where not exists (
           select from towpath.channel c where c.name = i.name and c.closed_at is not null)
     order by place
    returning at)
select at from posted;

-- The channel and its events by one statement, so by one snapshot: what is deleted beside it is seen
-- whole or not at all. The sizes are summed before a body is read.
-- name: read [sqlite]
select :nth as nth, c.id as channel, c.head, c.low, c.ended,
       coalesce((select number from towpath.era), 0) as era,
       exists (select 1 from towpath.posted p where p.name = :name) as posted,
       e.seq, e.at, e.id, e.type, e.key, e.headers, e.encoding, e.body, e.size
  from (select 1)
  left join towpath.channel c on c.name = :name
  left join (
       select seq, sum(size) over (order by seq) - size as before
         from (select e.seq, e.size
                 from towpath.channel n cross join towpath.event e on e.channel = n.id
                where n.name = :name and e.seq > max(:after, n.low)
                order by e.seq limit :most)) as s on s.before < :most_bytes
  left join towpath.event e on e.channel = c.id and e.seq = s.seq
 order by e.seq;

-- Without `in_items` and `offset 0` PostgreSQL may read all channels, or the whole of one, to join
-- them by a hash: it expects more items than there are.
-- name: read [postgres]
select i.nth, c.id as channel, c.head, c.low, c.ended,
       coalesce((select number from towpath.era), 0) as era,
       exists (select from towpath.posted p where p.name = i.name) as posted,
       e.seq, e.at, e.id, e.type, e.key, e.headers, e.encoding, e.body, e.size
  from json_to_recordset(cast(:items as json)) as i(
       nth integer, name text, after bigint, most integer, most_bytes bigint)
  left join towpath.channel c on c.name = i.name and c.name {in_items name text}
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
