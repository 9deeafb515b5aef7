-- Reading the log.

-- Reads a channel and its events by one statement, so by one snapshot: a deletion at the same time is
-- seen whole or not at all. The sizes are summed before any body is read. SQLite sums them from one
-- number to the next: a window function would sum `most` sizes even for a page of a few large events.
-- name: read [sqlite]
with recursive page (channel, seq, size, before) as (
    select * from (
        select e.channel, e.seq, e.size, 0
          from towpath.channel n cross join towpath.event e on e.channel = n.id
         where n.name = :name and e.seq > max(:after, n.low)
         order by e.seq limit 1)
    union all
    select e.channel, e.seq, e.size, p.before + p.size
      from page p cross join towpath.event e on e.channel = p.channel and e.seq = p.seq + 1
     where p.before + p.size < :most_bytes
     limit :most)
select :nth as nth, c.id as channel, c.head, c.low, c.ended, c.media, c.fork_at, l.ttl, l.expires_at,
       :now as now, coalesce((select number from towpath.era), 0) as era,
       {posted :name} as posted,
       e.seq, e.at, e.id, e.type, e.key, e.headers, e.encoding, e.body, e.size
  from (select 1)
  left join towpath.channel c on c.name = :name and {alive c}
  left join towpath.lifetime l on l.channel = c.id
  left join page on page.channel = c.id
  left join towpath.event e on e.channel = c.id and e.seq = page.seq
 order by e.seq;

-- Without `in_items` PostgreSQL may read all channels to join them by a hash: it expects more items than
-- there are.
-- name: read [postgres]
select i.nth, c.id as channel, c.head, c.low, c.ended, c.media, c.fork_at,
       (select l.ttl from towpath.lifetime l where l.channel = c.id) as ttl,
       (select l.expires_at from towpath.lifetime l where l.channel = c.id) as expires_at,
       {now} as now, coalesce((select number from towpath.era), 0) as era,
       {posted i.name} as posted,
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

-- A fork, read from before its own events. `line` is the fork, its source, the source of that and so on:
-- each has the events behind `since` and up to `upto`. Numbers have no holes, so a page of `most` events
-- ends at `after + most`; otherwise PostgreSQL would sort all events of the line.
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
    select l.id, case when l.since > b.seq then l.since else b.seq end as since,
           case when l.upto < b.seq + :most then l.upto else b.seq + :most end as upto
      from line l cross join beginning b),
picked as (
    select e.channel, e.seq, e.size
      from span s cross join towpath.event e
     where e.channel = s.id and e.seq > s.since and e.seq <= s.upto),
sized as (select channel, seq, sum(size) over (order by seq) - size as before from picked)
select coalesce((select upto from line where id = :channel), -1) as upto,
       c.id as channel, c.head, b.low, c.ended, c.media, c.fork_at, l.ttl, l.expires_at,
       {now} as now, coalesce((select number from towpath.era), 0) as era,
       {posted :name} as posted,
       e.seq, e.at, e.id, e.type, e.key, e.headers, e.encoding, e.body, e.size
  from towpath.channel c
 cross join edge b
  left join towpath.lifetime l on l.channel = c.id
  left join sized s on s.before < :most_bytes
  left join towpath.event e on e.channel = s.channel and e.seq = s.seq
 where c.name = :name and {alive c} order by e.seq;

-- Channels with anything to read behind these cursors: events, also posted ones, an end or a reset. Each
-- process runs this one statement at each ring, so it is as cheap as can be.
-- name: moved [sqlite]
select i.key as name
  from json_each(:cursors) i
  left join towpath.channel c on c.name = i.key and {alive c}
  left join (select coalesce(max(number), 0) as era from towpath.era)
 where case when c.id is null then i.value <> :start
            else c.ended is not null or i.value <> printf('%04d%012d_%016d', era, c.id, c.head) end
    or exists (select 1 from towpath.posted p where p.name = i.key);

-- name: moved [postgres]
select i.name
  from json_each_text(cast(:cursors as json)) as i(name, cursor)
  left join towpath.channel c
    on c.name = i.name and {alive c}
   and c.name = any(array(select json_object_keys(cast(:cursors as json))))
  left join (select coalesce(max(number), 0) as era from towpath.era) as e on true
 where case when c.id is null then i.cursor <> :start
            else c.ended is not null
              or i.cursor <> lpad(cast(e.era as text), 4, '0') || lpad(cast(c.id as text), 12, '0')
                             || '_' || lpad(cast(c.head as text), 16, '0') end
    or exists (select from towpath.posted p where p.name = i.name);

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
