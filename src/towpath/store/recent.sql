-- What has ended lately.

-- The newest failed jobs of a topic, or of all: one of the two arms reads nothing.
-- name: newest_buried
select b.seq, (select j.id from towpath.job j where j.seq = b.seq) as id, b.topic, b.buried_at,
       {now} as now,
       substr((select e.error from towpath.failure e where e.seq = b.seq
                order by e.epoch desc limit 1), 1, 1000) as error
  from (select * from (select no, seq, topic, buried_at from towpath.buried
                        where cast(:topic as text) is null
                        order by no desc limit cast(:limit as bigint)) as every
        union all
        select * from (select no, seq, topic, buried_at from towpath.buried
                        where topic between :topic and :topic
                        order by topic desc, no desc limit cast(:limit as bigint)) as of_topic) b
 order by b.no desc;

-- name: newest_completed
select f.finished_at, f.duration, f.epoch,
       (select j.run_at from towpath.job j where j.seq = f.seq) as run_at
  from (select seq, finished_at, duration, epoch, topic, cancelled from towpath.done
         order by seq desc limit cast(:window as bigint)) f
 where not f.cancelled and (cast(:topic as text) is null or f.topic = :topic)
 order by f.seq desc limit cast(:limit as bigint);
