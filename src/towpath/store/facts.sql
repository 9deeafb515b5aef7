-- What is known around one job: its lease, its place in line, what it waits for.

-- name: lease_of
select {now} as now, l.session, coalesce(l.worker, s.worker) as worker, l.reserved_at, l.started,
       l.until, s.beat_at, s.stop_at
  from towpath.lease l left join towpath.session s on s.id = l.session where l.seq = :seq;

-- name: count_relatives
select (select count(*) from towpath.dependency d where d.child = :seq) as parents,
       (select count(*) from towpath.dependency d where d.parent = :seq) as children;

-- name: line_of
select {now} as now,
       (select t.paused_until from towpath.topic t where t.name = :topic) as paused_until,
       (select count(*) from (
           select 1 from towpath.ready r
            where r.topic = :topic and (r.priority, r.seq) < (cast(:priority as bigint), cast(:seq as bigint))
            order by r.priority, r.seq limit cast(:most as bigint)) as ahead) as ahead,
       exists (select 1 from towpath.lease l where l.topic = :topic and l.until is null)
       or exists (select 1 from towpath.lease l where l.topic = :topic and l.until is not null) as held;

-- name: limit_of
select b.waits, l.key, l.concurrency, l.pace, l.burst, l.free_at,
       case when l.key is not null then (
           select count(*) from towpath.lease e where e.limit_key = l.key) end as running
  from towpath.blocked b left join towpath.limits l on l.key = b.limit_key where b.seq = :seq;

-- Those that failed come first.
-- name: open_parents
select p.seq, p.id, p.topic, p.state from (
    select l.seq, l.id, l.topic, l.state from towpath.dependency d
      join towpath.located l on l.seq = d.parent
     where d.child = :seq and not d.completed) as p
 order by case when p.state in ('buried', 'cancelled') then 0 else 1 end, p.seq
 limit cast(:limit as bigint);

-- name: count_open_parents
select count(*) from towpath.dependency d where d.child = :seq and not d.completed;

-- name: offer_of
select o.wanted, o.named from towpath.offer o where o.seq = :seq;

-- name: kept_until
select d.prune_at from towpath.done d where d.seq = :seq;

-- name: last_kind
select f.kind, f.error from towpath.failure f where f.seq = :seq order by f.epoch desc limit 1;

-- The errors of the jobs of the topic that failed last.
-- name: errors_beside
select substr(coalesce((select f.error from towpath.failure f
                         where f.seq = b.seq order by f.epoch desc limit 1), ''),
              1, cast(:length as integer)) as error
  from (select seq from towpath.buried where topic = :topic order by no desc
         limit cast(:limit as bigint)) as b
 where b.seq <> :seq;
