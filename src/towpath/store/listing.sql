-- Lists of jobs.

-- A list goes through numbers, a window at a time, in the table of the state that it asks for. So
-- finished jobs never slow the others, and no request reads more than its bound.

-- name: look_any
with looked as materialized (
    select j.seq, (cast(:topic as text) is null or j.topic = :topic) as matches
      from {window seq, topic from job} j)
{found};

-- name: search_any
with looked as materialized (
    select j.seq, (cast(:topic as text) is null or j.topic = :topic) and {fits j} as matches
      from {window seq, created_at, topic, key, payload from job} j)
{found};

-- Where many jobs are ready: `ready` is not ordered by number, so each job of the window is looked up
-- there. PostgreSQL could hash an `exists` and read the whole table; this form it cannot hash.
-- name: look_waiting
with looked as materialized (
    select j.seq,
           (cast(:topic as text) is null or j.topic = :topic)
           and ((select 1 from towpath.ready r
                  where r.topic = j.topic and r.priority = j.priority and r.seq = j.seq) is not null
                or (cast(:pending as boolean)
                    and ((select 1 from towpath.delayed d where d.seq = j.seq) is not null
                         or (select 1 from towpath.blocked w where w.seq = j.seq) is not null)))
           and (not cast(:deep as boolean) or {fits j}) as matches
      from {window seq, created_at, priority, topic, key, payload from job} j)
{found};

-- From the topics to their jobs: SQLite keeps this order in a cross join.
-- name: look_few_waiting
with looked as materialized (
    select t.seq, {fitting t} as matches from (
        select r.seq, r.topic from towpath.topic n cross join towpath.ready r
         where r.topic = n.name and (cast(:topic as text) is null or n.name = :topic)
        union all
        select d.seq, d.topic from towpath.topic n cross join towpath.delayed d
         where d.topic = n.name and cast(:pending as boolean) and (cast(:topic as text) is null or n.name = :topic)
        union all
        select w.seq, w.topic from towpath.topic n cross join towpath.blocked w
         where w.topic = n.name and cast(:pending as boolean) and (cast(:topic as text) is null or n.name = :topic)) as t
     where t.seq > cast(:low as bigint) and t.seq < cast(:high as bigint))
{found};

-- name: look_delayed
with looked as materialized (
    select t.seq, {fitting t} as matches from {window seq, topic from delayed} t)
{found};

-- name: look_blocked
with looked as materialized (
    select t.seq, {fitting t} as matches from {window seq, topic from blocked} t)
{found};

-- name: look_reserved
with looked as materialized (
    select t.seq, {fitting t}
           and (cast(:worker as text) is null or coalesce(coalesce(t.worker,
                    (select s.worker from towpath.session s where s.id = t.session)) = :worker, false)) as matches
      from {window seq, topic, session, worker from lease} t)
{found};

-- name: look_buried
with looked as materialized (
    select t.seq, {fitting t} as matches from {window seq, topic from buried} t)
{found};

-- name: look_completed
with looked as materialized (
    select t.seq, not t.cancelled and {fitting t} as matches from {window seq, topic, cancelled from done} t)
{found};

-- name: look_cancelled
with looked as materialized (
    select t.seq, {fitting t} as matches from {window seq, topic from done where cancelled} t)
{found};

-- name: look_keyed
with looked as materialized (
    select j.seq, {fits j}
           and (cast(:states as text) is null
                or (select l.state from towpath.located l where l.seq = j.seq) in {names states}) as matches
      from towpath.topic n cross join towpath.job j
     where j.topic = n.name and j.key = :key and (cast(:topic as text) is null or n.name = :topic)
       and j.seq > cast(:low as bigint) and j.seq < cast(:high as bigint))
{found};

-- name: count_few_waiting
select (select count(*) from (
           select 1 from towpath.topic n cross join towpath.ready r
            where r.topic = n.name and (cast(:topic as text) is null or n.name = :topic)
            limit cast(:most as bigint)) as ready)
     + (select count(*) from (
           select 1 from towpath.topic n cross join towpath.delayed d
            where d.topic = n.name and cast(:pending as boolean) and (cast(:topic as text) is null or n.name = :topic)
            limit cast(:most as bigint)) as later)
     + (select count(*) from (
           select 1 from towpath.topic n cross join towpath.blocked w
            where w.topic = n.name and cast(:pending as boolean) and (cast(:topic as text) is null or n.name = :topic)
            limit cast(:most as bigint)) as parked) as number;

-- name: count_keyed
select count(*) as number from (
    select 1 from towpath.topic n cross join towpath.job j
     where j.topic = n.name and j.key = :key and (cast(:topic as text) is null or n.name = :topic)
     limit cast(:most as bigint)) as found;

-- Each count ends at :most rows.
-- name: count_ready
select count(*) as fitting, count(*) as looked from (
    select 1 from towpath.topic n cross join towpath.ready t
     where t.topic = n.name and (cast(:topic as text) is null or n.name = :topic)
     limit cast(:most as bigint)) as found;

-- name: count_delayed
select count(*) as fitting, count(*) as looked from (
    select 1 from towpath.topic n cross join towpath.delayed t
     where t.topic = n.name and (cast(:topic as text) is null or n.name = :topic)
     limit cast(:most as bigint)) as found;

-- name: count_blocked
select count(*) as fitting, count(*) as looked from (
    select 1 from towpath.topic n cross join towpath.blocked t
     where t.topic = n.name and (cast(:topic as text) is null or n.name = :topic)
     limit cast(:most as bigint)) as found;

-- name: count_buried
select count(*) as fitting, count(*) as looked from (
    select 1 from towpath.topic n cross join towpath.buried t
     where t.topic = n.name and (cast(:topic as text) is null or n.name = :topic)
     limit cast(:most as bigint)) as found;

-- name: count_reserved
select coalesce(sum(case when cast(:topic as text) is null or topic = :topic then 1 else 0 end), 0) as fitting,
       count(*) as looked
  from (select topic from towpath.lease order by seq desc limit cast(:most as bigint)) as found;

-- name: count_completed
select coalesce(sum(case when (not cancelled or cast(:cancelled as boolean))
                          and (cast(:topic as text) is null or topic = :topic)
                         then 1 else 0 end), 0) as fitting,
       count(*) as looked
  from (select topic, cancelled from towpath.done order by seq desc limit cast(:most as bigint)) as found;

-- name: count_cancelled
select coalesce(sum(case when cast(:topic as text) is null or topic = :topic then 1 else 0 end), 0) as fitting,
       count(*) as looked
  from (select topic from towpath.done where cancelled order by seq desc limit cast(:most as bigint)) as found;

-- The line of a topic behind a place in it: its key is the order of reservation.
-- name: line_ready [sqlite]
select r.priority as place, r.seq from towpath.ready r
 where r.topic = :topic and (r.priority, r.seq) > (:place, :seq)
 order by r.priority, r.seq limit :limit;

-- name: line_ready [postgres]
select l.place, l.seq from json_to_recordset(cast(:items as json)) as i(topic text), lateral (
    select r.priority as place, r.seq from towpath.ready r
     where r.topic = i.topic and (r.priority, r.seq) > (cast(:place as bigint), cast(:seq as bigint))
     order by r.priority, r.seq limit cast(:limit as bigint)) l;

-- name: line_delayed [sqlite]
select d.run_at as place, d.seq from towpath.delayed d
 where d.topic = :topic and (d.run_at, d.seq) > (:place, :seq)
 order by d.run_at, d.seq limit :limit;

-- name: line_delayed [postgres]
select l.place, l.seq from json_to_recordset(cast(:items as json)) as i(topic text), lateral (
    select d.run_at as place, d.seq from towpath.delayed d
     where d.topic = i.topic and (d.run_at, d.seq) > (cast(:place as bigint), cast(:seq as bigint))
     order by d.run_at, d.seq limit cast(:limit as bigint)) l;

-- By a range of one name, so that PostgreSQL does not read the jobs of other topics.
-- name: line_buried [sqlite]
select b.no as place, b.seq from towpath.buried b
 where b.topic = :topic and b.no > :place order by b.no limit :limit;

-- name: line_buried [postgres]
select l.place, l.seq from json_to_recordset(cast(:items as json)) as i(topic text), lateral (
    select b.no as place, b.seq from towpath.buried b
     where b.topic between i.topic and i.topic and b.no > cast(:place as bigint)
     order by b.topic, b.no limit cast(:limit as bigint)) l;

-- name: place_ready
select priority from towpath.job where seq = :seq;

-- name: place_delayed
select run_at from towpath.located where seq = :seq;

-- name: place_buried
select no from towpath.buried where seq = :seq;

-- name: topics
select name from towpath.topic where cast(:topic as text) is null or name = :topic;

-- name: numbers_of [sqlite]
select seq from towpath.job where id = :id;

-- name: numbers_of [postgres]
select j.seq from json_to_recordset(cast(:items as json)) as i(id uuid) join towpath.job j on j.id = i.id;

-- name: ends
select (select min(seq) from towpath.job) as low, (select max(seq) from towpath.job) as high;

-- The first job from a number on.
-- name: created_from
select seq, created_at from towpath.job where seq >= :seq order by seq limit 1;

-- name: read_jobs [sqlite]
select {located} from towpath.located where seq = :seq;

-- name: read_jobs [postgres]
select {located l} from json_to_recordset(cast(:items as json)) as i(seq bigint),
       lateral (select * from towpath.located where seq = i.seq limit 1) l;

-- A payload that is too long for a preview is not read.
-- name: read_briefs [sqlite]
select l.seq, l.id, l.topic, l.state, l.priority, l.key, l.encoding, l.options, l.created_at, l.run_at,
       l.finished_at, l.duration, l.epoch, l.retries, l.crashes, l.cancel_requested, l.progress,
       l.progress_message, l.session,
       (select coalesce(t.worker, s.worker) from towpath.lease t
          left join towpath.session s on s.id = t.session where t.seq = l.seq) as worker,
       substr(l.last_error, 1, :most_error) as last_error,
       case when {size l.payload} <= :most_payload then l.payload end as payload,
       {size l.payload} as size
  from towpath.located l where l.seq = :seq;

-- name: read_briefs [postgres]
select l.seq, l.id, l.topic, l.state, l.priority, l.key, l.encoding, l.options, l.created_at, l.run_at,
       l.finished_at, l.duration, l.epoch, l.retries, l.crashes, l.cancel_requested, l.progress,
       l.progress_message, l.session,
       (select coalesce(t.worker, s.worker) from towpath.lease t
          left join towpath.session s on s.id = t.session where t.seq = l.seq) as worker,
       substr(l.last_error, 1, cast(:most_error as integer)) as last_error,
       case when {size l.payload} <= cast(:most_payload as bigint) then l.payload end as payload,
       {size l.payload} as size
  from json_to_recordset(cast(:items as json)) as i(seq bigint),
       lateral (select * from towpath.located where seq = i.seq limit 1) l;
