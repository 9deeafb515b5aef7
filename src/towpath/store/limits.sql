-- Limits: what may start, what waits, and what follows when there is room again.

-- A transaction that parks a job or frees a place holds these rows, so that neither overlooks the
-- other: in one statement, and in one order, so that no two transactions wait for each other.
-- name: lock_limits [sqlite]
select l.key, l.concurrency, l.pace, l.burst, l.tat, :now as now
  from {items i(key text)} cross join towpath.limits l on l.key = i.key;

-- name: lock_limits [postgres]
select l.key, l.concurrency, l.pace, l.burst, l.tat, {now} as now
  from towpath.limits l where l.key {in_items key text}
 order by l.key collate "C" for update;

-- The newest declaration holds, even if an older one is written after it. PostgreSQL locks the rows that
-- it does not change, too. Returns the keys that had other limits before.
-- name: declare_limits [sqlite]
select l.key
  from {items i(key text, concurrency bigint, pace bigint, burst bigint, seq bigint)}
 cross join towpath.limits l on l.key = i.key
 where l.declared_by < i.seq
   and (l.concurrency, l.pace, l.burst) is not (i.concurrency, i.pace, i.burst);
insert into towpath.limits (key, concurrency, pace, burst, declared_by)
select key, concurrency, pace, burst, seq
  from {items i(key text, concurrency bigint, pace bigint, burst bigint, seq bigint)} where true
on conflict (key) do update set concurrency = excluded.concurrency, pace = excluded.pace,
   burst = excluded.burst, declared_by = excluded.declared_by, free_at = null
 where declared_by < excluded.declared_by
   and (concurrency, pace, burst) is not (excluded.concurrency, excluded.pace, excluded.burst);

-- name: declare_limits [postgres]
with declared as (
    insert into towpath.limits as l (key, concurrency, pace, burst, declared_by)
    select key, concurrency, pace, burst, seq
      from json_to_recordset(cast(:items as json)) as i(
           key text, concurrency bigint, pace bigint, burst bigint, seq bigint)
     order by key collate "C"
    on conflict (key) do update set concurrency = excluded.concurrency, pace = excluded.pace,
       burst = excluded.burst, declared_by = excluded.declared_by, free_at = null
     where l.declared_by < excluded.declared_by and (l.concurrency, l.pace, l.burst)
           is distinct from (excluded.concurrency, excluded.pace, excluded.burst)
    returning l.key, cast(l.xmax as text) <> '0' as was_there)
select key from declared where was_there;

-- A statement of its own, after the rows of the limits are locked: so PostgreSQL counts what was
-- committed while it waited for them.
-- name: count_running
select i.key, (select count(*) from towpath.lease e where e.limit_key = i.key) as running
  from {items i(key text)};

-- Only where `tat` has not moved on: a transaction that frees a place may not hold the row any more. For
-- the same reason a `free_at` in the future stays if the caller saw no job that waits.
-- name: pace_limits [sqlite]
update towpath.limits
   set tat = :tat, free_at = coalesce(:free_at, case when free_at > :now then free_at end)
 where key = :key and tat <= :tat;

-- name: pace_limits [postgres]
update towpath.limits l
   set tat = i.tat, free_at = coalesce(i.free_at, case when l.free_at > {now} then l.free_at end)
  from json_to_recordset(cast(:items as json)) as i(key text, tat bigint, free_at bigint)
 where l.key = i.key and l.tat <= i.tat;

-- For each job: how many of its key come before it in its topic (no more than can matter), how many run,
-- and the limit. One statement reads all at one instant, so that no job moves between two of these
-- counts.
-- name: count_before [sqlite]
select :seq as seq, l.key,
       (select count(*) from (select 1 from towpath.ready r
         where r.limit_key = :key and r.topic = :topic and (r.priority, r.seq) < (:priority, :seq)
         limit (select coalesce(concurrency, burst + :late / pace) from towpath.limits where key = :key)))
     + (select count(*) from (select 1 from towpath.blocked b
         where b.limit_key = :key and b.topic = :topic and b.waits is null
           and (b.priority, b.seq) < (:priority, :seq)
         limit (select coalesce(concurrency, burst + :late / pace) from towpath.limits where key = :key))) as before,
       (select count(*) from towpath.lease e where e.limit_key = :key) as running,
       l.concurrency, l.pace, l.burst, l.tat, :now as now
  from towpath.limits l where l.key = :key;

-- name: count_before [postgres]
with item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           key text, topic text, priority bigint, seq bigint)),
bound as materialized (
    select l.*, (select count(*) from towpath.lease e where e.limit_key = l.key) as running,
           coalesce(l.concurrency, l.burst + cast(:late as bigint) / l.pace) as most
      from towpath.limits l where l.key = any(array(select distinct key from item)))
select i.seq, i.key,
       (select count(*) from (select from towpath.ready r
         where r.limit_key = i.key and r.topic = i.topic and (r.priority, r.seq) < (i.priority, i.seq)
         limit l.most) as r)
     + (select count(*) from (select from towpath.blocked b
         where b.limit_key = i.key and b.topic = i.topic and b.waits is null
           and (b.priority, b.seq) < (i.priority, i.seq) limit l.most) as b) as before,
       l.running, l.concurrency, l.pace, l.burst, l.tat, {now} as now
  from item i join bound l on l.key = i.key;

-- Parks jobs whose new leases no caller has seen: their epochs go back by one, as they were never given
-- out.
-- name: park [sqlite]
insert into towpath.blocked ({ticket})
select seq, topic, priority, epoch - 1, key, retries, crashes, timeouts, releases, buries, kicks,
       limit_key, awaited, streamed
  from towpath.lease where seq {in_items seq bigint};
delete from towpath.lease where seq {in_items seq bigint};

-- name: park [postgres]
with gone as (
    delete from towpath.lease l where l.seq {in_items seq bigint} returning l.*)
insert into towpath.blocked ({ticket})
select seq, topic, priority, epoch - 1, key, retries, crashes, timeouts, releases, buries, kicks,
       limit_key, awaited, streamed from gone;

-- Parks the jobs in line behind one that is over its limit. Otherwise reservations would look at them
-- and park them one by one.
-- name: park_ready [sqlite]
select priority as last_priority, seq as last_seq from (
    select priority, seq from towpath.ready where limit_key = :key and topic = :topic
     order by priority, seq limit :limit)
 order by priority desc, seq desc limit 1;
insert into towpath.blocked ({ticket}) select {ticket} from towpath.ready
 where limit_key = :key and topic = :topic and (priority, seq) <= (@last_priority, @last_seq);
delete from towpath.ready
 where limit_key = :key and topic = :topic and (priority, seq) <= (@last_priority, @last_seq);

-- name: park_ready [postgres]
with picked as materialized (
    select t.tid from json_to_recordset(cast(:items as json)) as i(key text, topic text),
           lateral (select r.ctid as tid from towpath.ready r
                     where r.limit_key = i.key and r.topic = i.topic
                     order by r.priority, r.seq limit cast(:limit as bigint)
                       for update skip locked) t),
gone as (
    delete from towpath.ready r where r.ctid = any(array(select tid from picked)) returning r.*)
insert into towpath.blocked ({ticket}) select {ticket} from gone;

-- Where jobs of a key wait: jumps from topic to topic, however many wait there.
-- name: topics_of_blocked
with recursive found(key, topic) as (
    select i.key, (select b.topic from towpath.blocked b {index towpath_blocked_limit}
             where b.limit_key = i.key and b.waits is null
             order by b.topic limit 1)
      from {items i(key text)}
    union all
    select f.key, (select b.topic from towpath.blocked b {index towpath_blocked_limit}
             where b.limit_key = f.key and b.waits is null and b.topic > f.topic
             order by b.topic limit 1)
      from found f where f.topic is not null)
select key, topic from found where topic is not null;

-- Lets in as many jobs of each topic as there is room for, less those that are ready. PostgreSQL skips a
-- locked job and takes none behind it instead: the transaction that holds it, or upkeep, lets it in.
-- name: unpark [sqlite]
select priority as last_priority, seq as last_seq from (
    select priority, seq from towpath.blocked
     where limit_key = :key and topic = :topic and waits is null
     order by priority, seq
     limit max(0, :room - (select count(*) from (
         select 1 from towpath.ready r where r.limit_key = :key and r.topic = :topic limit :room))))
 order by priority desc, seq desc limit 1;
insert into towpath.ready ({ticket}) select {ticket} from towpath.blocked
 where limit_key = :key and topic = :topic and waits is null
   and (priority, seq) <= (@last_priority, @last_seq);
delete from towpath.blocked
 where limit_key = :key and topic = :topic and waits is null
   and (priority, seq) <= (@last_priority, @last_seq) returning topic;

-- name: unpark [postgres]
with picked as materialized (
    select h.tid
      from json_to_recordset(cast(:items as json)) as i(key text, topic text, room bigint),
           lateral (select b.seq from towpath.blocked b
                     where b.limit_key = i.key and b.topic = i.topic and b.waits is null
                     order by b.priority, b.seq
                     limit greatest(0, i.room - (select count(*) from (
                           select from towpath.ready r
                            where r.limit_key = i.key and r.topic = i.topic limit i.room) as r))) t,
           lateral (select b.ctid as tid from towpath.blocked b
                     where b.seq = t.seq for update skip locked) h),
gone as (
    delete from towpath.blocked b where b.ctid = any(array(select tid from picked)) returning b.*)
insert into towpath.ready ({ticket}) select {ticket} from gone returning topic;

-- name: due_limits
select key from towpath.limits where free_at <= {now} order by free_at limit :limit;

-- No start moves `tat` further ahead than a whole burst, and none waits longer than one pace. What
-- lies further ahead is from before the clock was set back.
-- name: move_near [sqlite]
update towpath.limits
   set tat = min(tat, :now + burst * pace), free_at = min(free_at, :now + pace)
 where tat > :now + burst * pace or free_at > :now + pace;

-- name: move_near [postgres]
with picked as materialized (
    select key from towpath.limits where tat > {now} + burst * pace or free_at > {now} + pace
       for update skip locked)
update towpath.limits l
   set tat = least(tat, {now} + burst * pace),
       free_at = case when free_at > {now} + pace then {now} + pace else free_at end
 where l.key = any(array(select key from picked));

-- name: count_ahead
select count(*) from towpath.limits where tat > {now} + burst * pace or free_at > {now} + pace;

-- Every key for which jobs wait; jumps from key to key.
-- name: blocked_keys
with recursive found(key) as (
    select min(limit_key) from towpath.blocked where waits is null and limit_key > :after
    union all
    select (select min(b.limit_key) from towpath.blocked b
             where b.waits is null and b.limit_key > f.key)
      from found f where f.key is not null)
select key from found where key is not null limit :limit;

-- name: names_of_limits
select key from towpath.limits order by key;

-- Each count ends at :most rows. A range of one key, in the order of the index, as in `by_topic`.
-- name: list_limits
select l.key, l.concurrency, l.pace, l.burst,
       (select count(*) from towpath.lease e where e.limit_key = l.key) as running,
       (select count(*) from (select 1 from towpath.blocked b
                               where b.limit_key between l.key and l.key and b.waits is null
                               order by b.limit_key, b.topic, b.priority, b.seq
                               limit cast(:most as bigint)) as c) as blocked,
       l.free_at
  from towpath.limits l where l.key {in_items key text} order by l.key;

-- Locks these rows; `forget_limits` looks again, as a job may have come under a limit since.
-- name: unused_limits
select key from towpath.limits l where tat < {now}
   and not exists (select 1 from towpath.lease e where e.limit_key = l.key)
   and not exists (select 1 from towpath.ready r where r.limit_key = l.key)
   and not exists (select 1 from towpath.blocked b where b.limit_key = l.key and b.waits is null)
 limit cast(:limit as bigint) {skip_locked};

-- name: forget_limits
delete from towpath.limits
 where key {in_items key text}
   and not exists (select 1 from towpath.lease e where e.limit_key = towpath.limits.key)
   and not exists (select 1 from towpath.ready r where r.limit_key = towpath.limits.key)
   and not exists (select 1 from towpath.blocked b
                    where b.limit_key = towpath.limits.key and b.waits is null);
