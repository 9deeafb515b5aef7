-- Routing: from the log of a channel to sagas.

-- Which channels have subscriptions, from one name to the next, and whether there is anything to route.
-- name: channels [sqlite]
with recursive line(name, n) as (
    select min(u.channel), 1 from towpath.subscriptions u where u.deleted_at is null and u.channel > :after
    union all
    select (select min(u.channel) from towpath.subscriptions u
             where u.deleted_at is null and u.channel > l.name), l.n + 1
      from line l where l.name is not null and l.n < :limit)
select l.name, exists (select 1 from towpath.posted p where p.name = l.name) as posted,
       coalesce(c.head > coalesce(
           (select r.acked from towpath.consumer r where r.channel = c.id and r.name = :consumer),
           coalesce(c.fork_at, 0)), false) as behind
  from line l left join towpath.channel c on c.name = l.name and {alive c}
 where l.name is not null order by l.name;

-- name: channels [postgres]
with recursive line(name, n) as (
    (select u.channel, 1 from towpath.subscriptions u
      where u.deleted_at is null and u.channel > :after order by u.channel limit 1)
    union all
    select t.channel, l.n + 1 from line l cross join lateral (
        select u.channel from towpath.subscriptions u
         where u.deleted_at is null and u.channel > l.name order by u.channel limit 1) t
     where l.n < cast(:limit as bigint))
select l.name, exists (select from towpath.posted p where p.name = l.name) as posted,
       coalesce(c.head > coalesce(
           (select r.acked from towpath.consumer r where r.channel = c.id and r.name = :consumer),
           coalesce(c.fork_at, 0)), false) as behind
  from line l left join lateral (
       select * from towpath.channel c where c.name = l.name and {alive c} offset 0) c on true
 order by l.name;

-- Returns nothing while another router holds the row: that one routes the channel.
-- name: hold
select c.id as channel, r.acked, coalesce((select number from towpath.era), 0) as era
  from towpath.channel c join towpath.consumer r on r.channel = c.id and r.name = :consumer
 where c.name = :channel {skip_locked of r};

-- A channel that was deleted and made again is routed from its beginning: all of its own events are
-- later than its subscriptions.
-- name: begin
insert into towpath.consumer (channel, acked, generation, seen_at, name, lasting)
select c.id, coalesce(c.fork_at, 0), 1, {now}, :consumer, true from towpath.channel c
 where c.name = :channel
   and exists (select 1 from towpath.subscriptions u where u.channel = :channel and u.deleted_at is null)
   and not exists (select 1 from towpath.consumer r where r.channel = c.id and r.name = :consumer)
on conflict do nothing
returning channel;

-- name: subscribed
select id, types, filter_rule, since_channel, since from towpath.subscriptions
 where channel = :channel and deleted_at is null order by id;

-- name: store_events [sqlite]
insert into towpath.webhook_events (channel, seq, at, event, type, encoding, payload)
values (:channel, :seq, :at, :event, :type, :encoding, :payload)
on conflict (event) do nothing;

-- name: store_events [postgres]
insert into towpath.webhook_events (channel, seq, at, event, type, encoding, payload)
select channel, seq, at, event, type, encoding, payload
  from json_to_recordset(cast(:items as json)) as i(
       channel bigint, seq bigint, at bigint, event uuid, type text, encoding text, payload text)
 order by seq
on conflict (event) do nothing;

-- name: make_sagas [sqlite]
insert into towpath.sagas (event_id, subscription_id, status, attempt_count, next_attempt_at, replay_no,
                           created_at, cancel_requested)
select e.id, s.value, 'Pending', 0, :now, 0, :now, false
  from towpath.webhook_events e, json_each(:subscriptions) s where e.event = :event
on conflict do nothing;

-- name: make_sagas [postgres]
insert into towpath.sagas (event_id, subscription_id, status, attempt_count, next_attempt_at, replay_no,
                           created_at, cancel_requested)
select e.id, cast(s.value as bigint), 'Pending', 0, {now}, 0, {now}, false
  from json_to_recordset(cast(:items as json)) as i(event uuid, seq bigint, subscriptions text)
 cross join lateral (
       select e.id from towpath.webhook_events e where e.event = i.event offset 0) e
 cross join lateral json_array_elements_text(cast(i.subscriptions as json)) s
 order by i.seq, cast(s.value as bigint)
on conflict do nothing;

-- name: move
update towpath.consumer set acked = :acked, seen_at = {now}
 where channel = :channel and name = :consumer;
