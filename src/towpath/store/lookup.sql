-- Reading jobs.

-- name: get
select {located} from towpath.located where id = :id;

-- name: get_all [sqlite]
select {located} from towpath.located where id = :id;

-- name: get_all [postgres]
select {located l} from json_to_recordset(cast(:items as json)) as i(id uuid),
       lateral (select * from towpath.located where id = i.id limit 1) l;

-- name: numbered
select {located} from towpath.located where seq = :seq;

-- name: failures
select epoch, kind, error, traceback, failed_at from towpath.failure
 where seq = (select seq from towpath.job where id = :id) order by epoch;

-- A list by status or state starts from the table of that state, so finished jobs never slow the others.
-- name: list_any
select {located l} from towpath.located l
 where (cast(:topic as text) is null or l.topic = :topic)
   and (cast(:key as text) is null or l.key = :key)
   and (cast(:text as text) is null or l.payload {like} :text escape '\')
   and l.seq < coalesce(cast(:before as bigint), 9223372036854775807)
 order by l.seq desc limit cast(:limit as bigint) offset cast(:offset as bigint);

-- Of each table only as many as the page can show, since one of them may hold millions.
-- name: list_pending
select {located l} from towpath.located l
 where l.seq in (
       select seq from (
           select r.seq from towpath.ready r
            where (cast(:topic as text) is null or r.topic = :topic)
              and (cast(:key as text) is null or r.key = :key)
              and (cast(:text as text) is null or exists (select 1 from towpath.job j
                    where j.seq = r.seq and j.payload {like} :text escape '\'))
              and r.seq < coalesce(cast(:before as bigint), 9223372036854775807)
            order by r.seq desc limit cast(:limit as bigint) + cast(:offset as bigint)) as ready
       union all
       select seq from (
           select d.seq from towpath.delayed d
            where (cast(:topic as text) is null or d.topic = :topic)
              and (cast(:key as text) is null or d.key = :key)
              and (cast(:text as text) is null or exists (select 1 from towpath.job j
                    where j.seq = d.seq and j.payload {like} :text escape '\'))
              and d.seq < coalesce(cast(:before as bigint), 9223372036854775807)
            order by d.seq desc limit cast(:limit as bigint) + cast(:offset as bigint)) as later
       union all
       select seq from (
           select w.seq from towpath.blocked w
            where (cast(:topic as text) is null or w.topic = :topic)
              and (cast(:key as text) is null or w.key = :key)
              and (cast(:text as text) is null or exists (select 1 from towpath.job j
                    where j.seq = w.seq and j.payload {like} :text escape '\'))
              and w.seq < coalesce(cast(:before as bigint), 9223372036854775807)
            order by w.seq desc limit cast(:limit as bigint) + cast(:offset as bigint)) as parked)
 order by l.seq desc limit cast(:limit as bigint) offset cast(:offset as bigint);

-- name: list_ready
select {located l} from towpath.located l
 where l.seq in (
       select seq from (
           select t.seq from towpath.ready t
            where (cast(:topic as text) is null or t.topic = :topic)
              and (cast(:key as text) is null or t.key = :key)
              and (cast(:text as text) is null or exists (select 1 from towpath.job j
                    where j.seq = t.seq and j.payload {like} :text escape '\'))
              and t.seq < coalesce(cast(:before as bigint), 9223372036854775807)
            order by t.seq desc limit cast(:limit as bigint) + cast(:offset as bigint)) as page)
 order by l.seq desc limit cast(:limit as bigint) offset cast(:offset as bigint);

-- name: list_delayed
select {located l} from towpath.located l
 where l.seq in (
       select seq from (
           select t.seq from towpath.delayed t
            where (cast(:topic as text) is null or t.topic = :topic)
              and (cast(:key as text) is null or t.key = :key)
              and (cast(:text as text) is null or exists (select 1 from towpath.job j
                    where j.seq = t.seq and j.payload {like} :text escape '\'))
              and t.seq < coalesce(cast(:before as bigint), 9223372036854775807)
            order by t.seq desc limit cast(:limit as bigint) + cast(:offset as bigint)) as page)
 order by l.seq desc limit cast(:limit as bigint) offset cast(:offset as bigint);

-- name: list_blocked
select {located l} from towpath.located l
 where l.seq in (
       select seq from (
           select t.seq from towpath.blocked t
            where (cast(:topic as text) is null or t.topic = :topic)
              and (cast(:key as text) is null or t.key = :key)
              and (cast(:text as text) is null or exists (select 1 from towpath.job j
                    where j.seq = t.seq and j.payload {like} :text escape '\'))
              and t.seq < coalesce(cast(:before as bigint), 9223372036854775807)
            order by t.seq desc limit cast(:limit as bigint) + cast(:offset as bigint)) as page)
 order by l.seq desc limit cast(:limit as bigint) offset cast(:offset as bigint);

-- name: list_processing
select {located l} from towpath.located l join towpath.lease t on t.seq = l.seq
 where (cast(:topic as text) is null or t.topic = :topic)
   and (cast(:key as text) is null or l.key = :key)
   and (cast(:text as text) is null or l.payload {like} :text escape '\')
   and t.seq < coalesce(cast(:before as bigint), 9223372036854775807)
 order by t.seq desc limit cast(:limit as bigint) offset cast(:offset as bigint);

-- name: list_failed
select {located l} from towpath.located l join towpath.buried t on t.seq = l.seq
 where (cast(:topic as text) is null or t.topic = :topic)
   and (cast(:key as text) is null or l.key = :key)
   and (cast(:text as text) is null or l.payload {like} :text escape '\')
   and t.seq < coalesce(cast(:before as bigint), 9223372036854775807)
 order by t.seq desc limit cast(:limit as bigint) offset cast(:offset as bigint);

-- name: list_completed
select {located l} from towpath.located l join towpath.done t on t.seq = l.seq and not t.cancelled
 where (cast(:topic as text) is null or t.topic = :topic)
   and (cast(:key as text) is null or l.key = :key)
   and (cast(:text as text) is null or l.payload {like} :text escape '\')
   and t.seq < coalesce(cast(:before as bigint), 9223372036854775807)
 order by t.seq desc limit cast(:limit as bigint) offset cast(:offset as bigint);

-- name: list_cancelled
select {located l} from towpath.located l join towpath.done t on t.seq = l.seq and t.cancelled
 where (cast(:topic as text) is null or t.topic = :topic)
   and (cast(:key as text) is null or l.key = :key)
   and (cast(:text as text) is null or l.payload {like} :text escape '\')
   and t.seq < coalesce(cast(:before as bigint), 9223372036854775807)
 order by t.seq desc limit cast(:limit as bigint) offset cast(:offset as bigint);

-- name: peek_ready
select {located} from towpath.located where seq = (
    select seq from towpath.ready where topic = :topic order by priority, seq limit 1);

-- name: peek_delayed
select {located} from towpath.located where seq = (
    select seq from towpath.delayed where topic = :topic order by run_at, seq limit 1);

-- name: peek_buried
select {located} from towpath.located where seq = (
    select seq from towpath.buried where topic = :topic order by no limit 1);
