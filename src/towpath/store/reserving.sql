-- From ready to reserved, and from delayed to ready.

-- Two workers must never take the same row. SQLite has one writer at a time; PostgreSQL locks the
-- rows it picks and steps over those that another worker holds. Neither takes anything while
-- something in these topics is due, which might be more urgent: the operation promotes it first. Nor
-- while one of them has jobs with limits, unless the operation looks at those.
-- name: reserve [sqlite]
select priority as last_priority, seq as last_seq from (
    select priority, seq from towpath.ready where topic = :topic order by priority, seq
     limit case when exists (select 1 from towpath.topic where name = :topic
                             and (paused_until > :now or limited and not :limited))
                  or exists (select 1 from towpath.delayed where topic = :topic and run_at <= :now)
                  or exists (select 1 from towpath.lease where topic = :topic and until <= :now)
                then 0 else :limit end)
 order by priority desc, seq desc limit 1;
insert into towpath.lease ({ticket}, reserved_at, token, session, worker, until)
select {leased_ticket r}, :now, :token, :session, :worker,
       case when :session is null or :expires then :now + j.ttr end
  from towpath.ready r cross join towpath.job j on j.seq = r.seq
 where r.topic = :topic and (r.priority, r.seq) <= (@last_priority, @last_seq);
select {reserved l j}
  from towpath.ready r cross join towpath.lease l on l.seq = r.seq
 cross join towpath.job j on j.seq = r.seq
 where r.topic = :topic and (r.priority, r.seq) <= (@last_priority, @last_seq)
 order by r.priority, r.seq;
delete from towpath.ready
 where topic = :topic and (priority, seq) <= (@last_priority, @last_seq);

-- A range begins behind the worker's low-water mark, so that it does not walk over the dead rows
-- that an old transaction elsewhere keeps PostgreSQL from removing.
-- name: reserve [postgres]
with clock as materialized (select {now} as now),
range as materialized (
    select * from json_to_recordset(cast(:ranges as json)) as r(
           topic text, priority bigint, seq bigint, upto bigint, due_from bigint)),
due as materialized (
    select from range r, clock
     where exists (select from towpath.topic t where t.name = r.topic
                      and (t.paused_until > now or t.limited and not cast(:limited as boolean)))
        or exists (select from towpath.delayed d
                    where d.topic = r.topic and d.run_at between r.due_from and now)
        or exists (select from towpath.lease l
                    where l.topic = r.topic and l.until between r.due_from and now)),
picked as materialized (
    select t.tid from range r cross join lateral (
        select y.ctid as tid from towpath.ready y
         where y.topic = r.topic and (y.priority, y.seq) > (r.priority, r.seq)
           and y.priority <= r.upto and not exists (select from due)
         order by y.priority, y.seq limit cast(:limit as bigint) for update skip locked) t
     limit cast(:limit as bigint)),
gone as (
    delete from towpath.ready y where y.ctid = any(array(select tid from picked)) returning y.*),
taken as materialized (
    select {leased_ticket g}, j.id, j.payload, j.encoding, j.ttr, j.options, j.created_at, j.run_at,
           clock.now as reserved_at, cast(:session as bigint) as session,
           case when cast(:session as bigint) is null or cast(:expires as boolean)
                then clock.now + j.ttr end as until
      from gone g join towpath.job j on j.seq = g.seq, clock),
leased as (
    insert into towpath.lease ({ticket}, reserved_at, token, session, worker, until)
    select {ticket}, reserved_at, cast(:token as bigint), session, cast(:worker as text), until
      from taken)
select {reserved t t} from taken t order by t.priority, t.seq;

-- The best of several topics: look without locking, let the operation choose, then take those.
-- name: candidates [sqlite]
select 1 where not exists (select 1 from towpath.delayed, json_each(:topics) t
                            where topic = t.value and run_at <= :now)
           and not exists (select 1 from towpath.lease, json_each(:topics) t
                            where topic = t.value and until <= :now)
           and (:limited or not exists (select 1 from json_each(:topics) t
                 cross join towpath.topic on name = t.value where limited));
select t.value as topic from json_each(:topics) t
 where not exists (select 1 from towpath.topic where name = t.value and paused_until > :now);
select topic, priority, seq from towpath.ready where topic = @topic
 order by priority, seq limit :limit;

-- name: candidates [postgres]
with clock as materialized (select {now} as now),
range as materialized (
    select r.*, t.limited, coalesce(t.paused_until > clock.now, false) as paused
      from clock, json_to_recordset(cast(:ranges as json)) as r(
           topic text, priority bigint, seq bigint, upto bigint, due_from bigint, most bigint)
           left join towpath.topic t on t.name = r.topic),
due as materialized (
    select from range r, clock
     where exists (select from towpath.delayed d
                    where d.topic = r.topic and d.run_at between r.due_from and now)
        or exists (select from towpath.lease l
                    where l.topic = r.topic and l.until between r.due_from and now)
        or (r.limited and not cast(:limited as boolean)))
select c.topic, c.priority, c.seq from range r, lateral (
       select y.topic, y.priority, y.seq from towpath.ready y
        where y.topic = r.topic and (y.priority, y.seq) > (r.priority, r.seq)
          and y.priority <= r.upto and not r.paused and not exists (select from due)
        order by y.priority, y.seq
        limit least(cast(:limit as bigint), r.most + cast(:tried as bigint))) c
 order by c.priority, c.seq limit cast(:limit as bigint);

-- name: take [sqlite]
insert into towpath.lease ({ticket}, reserved_at, token, session, worker, until)
select {leased_ticket r}, :now, :token, :session, :worker,
       case when :session is null or :expires then :now + j.ttr end
  from {items i(topic text, priority bigint, seq bigint)}
 cross join towpath.ready r
    on r.topic = i.topic and r.priority = i.priority and r.seq = i.seq
 cross join towpath.job j on j.seq = r.seq;
select {reserved l j}
  from {items i(topic text, priority bigint, seq bigint)}
 cross join towpath.ready r
    on r.topic = i.topic and r.priority = i.priority and r.seq = i.seq
 cross join towpath.lease l on l.seq = r.seq
 cross join towpath.job j on j.seq = r.seq;
delete from towpath.ready where (topic, priority, seq) in (
    select r.topic, r.priority, r.seq from {items i(topic text, priority bigint, seq bigint)}
     cross join towpath.ready r
        on r.topic = i.topic and r.priority = i.priority and r.seq = i.seq);

-- name: take [postgres]
with clock as materialized (select {now} as now),
item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           topic text, priority bigint, seq bigint)),
picked as materialized (
    select t.tid from item i cross join lateral (
        select y.ctid as tid from towpath.ready y
         where y.topic = i.topic and y.priority = i.priority and y.seq = i.seq
           for update skip locked) t),
gone as (
    delete from towpath.ready y where y.ctid = any(array(select tid from picked)) returning y.*),
taken as materialized (
    select {leased_ticket g}, j.id, j.payload, j.encoding, j.ttr, j.options, j.created_at, j.run_at,
           clock.now as reserved_at, cast(:session as bigint) as session,
           case when cast(:session as bigint) is null or cast(:expires as boolean)
                then clock.now + j.ttr end as until
      from gone g join towpath.job j on j.seq = g.seq, clock),
leased as (
    insert into towpath.lease ({ticket}, reserved_at, token, session, worker, until)
    select {ticket}, reserved_at, cast(:token as bigint), session, cast(:worker as text), until
      from taken)
select {reserved t t} from taken t order by t.priority, t.seq;

-- Marks topics in which a reservation has met a job with a limit, and no mark.
-- name: mark_limited
update towpath.topic set limited = true where name in (
    select name from towpath.topic where name {in_items topic text} and not limited {skip_locked});

-- The answer to a reservation was lost: these are its leases.
-- name: reserved_before
select {located l} from towpath.located l join towpath.lease t on t.seq = l.seq
 where t.token = :token order by l.priority, l.seq;

-- When something in these topics will next change by itself, the clock that says so, and whether one
-- of them has jobs with limits.
-- name: next_due [sqlite]
select min(at) as due_at, :now as now,
       exists (select 1 from json_each(:topics) t cross join towpath.topic on name = t.value
                where limited) as has_limits
  from (
    select (select min(run_at) from towpath.delayed where topic = t.value) as at
      from json_each(:topics) t
    union all
    select (select min(until) from towpath.lease where topic = t.value and until is not null)
      from json_each(:topics) t
    union all
    select (select paused_until from towpath.topic where name = t.value and paused_until > :now)
      from json_each(:topics) t
    union all
    select min(free_at) from towpath.limits where free_at is not null);

-- name: next_due [postgres]
select least((select min(d.at) from json_array_elements_text(cast(:topics as json)) t,
                lateral (select run_at as at from towpath.delayed
                          where topic = t.value order by run_at limit 1) d),
             (select min(l.at) from json_array_elements_text(cast(:topics as json)) t,
                lateral (select until as at from towpath.lease
                          where topic = t.value and until is not null order by until limit 1) l),
             (select min(p.paused_until) from towpath.topic p
               where p.name in {names topics} and p.paused_until > {now}),
             (select min(free_at) from towpath.limits where free_at is not null)) as due_at, {now} as now,
       exists (select from towpath.topic p where p.limited and p.name in {names topics}) as has_limits;

-- name: promote [sqlite]
select run_at as last_run_at, seq as last_seq from (
    select run_at, seq from towpath.delayed where topic = :topic and run_at <= :now
     order by run_at, seq limit :limit)
 order by run_at desc, seq desc limit 1;
insert into towpath.ready ({ticket}) select {ticket} from towpath.delayed
 where topic = :topic and (run_at, seq) <= (@last_run_at, @last_seq);
delete from towpath.delayed
 where topic = :topic and (run_at, seq) <= (@last_run_at, @last_seq) returning topic;

-- name: promote [postgres]
with clock as materialized (select {now} as now),
picked as materialized (
    select d.tid from json_to_recordset(cast(:items as json)) as i(topic text), clock,
           lateral (select y.ctid as tid from towpath.delayed y
                     where y.topic = i.topic and y.run_at <= clock.now
                     order by y.run_at, y.seq limit cast(:limit as bigint)
                       for update skip locked) d),
gone as (
    delete from towpath.delayed y where y.ctid = any(array(select tid from picked)) returning y.*)
insert into towpath.ready ({ticket}) select {ticket} from gone returning topic;
