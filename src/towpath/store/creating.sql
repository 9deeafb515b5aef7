-- Channels that are made before their first event.

-- name: make_channel [sqlite]
insert into towpath.channel
       (name, head, low, bytes, created_at, closed_at, ended, media, source, fork_at)
values (:name, :head, :low, :bytes, :now, case when :ended is not null then :now end, :ended, :media,
        :source, :fork_at)
on conflict do nothing
returning id, created_at as now, coalesce((select number from towpath.era), 0) as era;

-- name: make_channel [postgres]
insert into towpath.channel
       (name, head, low, bytes, created_at, closed_at, ended, media, source, fork_at)
select :name, :head, :low, :bytes, {now},
       case when cast(:ended as text) is not null then {now} end, :ended, :media,
       cast(:source as bigint), cast(:fork_at as bigint)
on conflict do nothing
returning id, created_at as now, coalesce((select number from towpath.era), 0) as era;

-- name: set_lifetime
insert into towpath.lifetime (channel, ttl, expires_at)
values (:channel, cast(:ttl as bigint), :expires_at);

-- name: first_headers
select coalesce(headers, '') from towpath.event where channel = :channel and seq = :seq;

-- name: states
select c.id, c.name, c.head, c.closed_at, c.ended, c.media, c.order_key, c.source, c.fork_at,
       l.ttl, l.expires_at, {now} as now, coalesce((select number from towpath.era), 0) as era
  from towpath.channel c left join towpath.lifetime l on l.channel = c.id
 where c.name = :name and {alive c};
