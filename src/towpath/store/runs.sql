-- Jobs that choose their workers. Each run is a job of its own, made as it is leased.

-- name: offer
insert into towpath.offer (seq, topic, priority, wanted, named, open_at)
select :seq, :topic, :priority, :wanted, :named, run_at from towpath.job where seq = :seq
on conflict (seq) do update set priority = excluded.priority, wanted = excluded.wanted,
   named = excluded.named;

-- name: offer_otherwise
update towpath.offer set priority = :priority,
       open_at = (select run_at from towpath.job where seq = :seq)
 where seq = :seq;

-- Those that name this worker come first.
-- name: find_offers [sqlite]
select o.seq, j.options, j.ttr
  from towpath.offer o join towpath.job j on j.seq = o.seq
 where o.topic in (select value from json_each(:topics)) and o.open_at <= :now
   and not exists (select 1 from towpath.topic t where t.name = o.topic and t.paused_until > :now)
   and (o.named is null or exists (select 1 from json_each(o.named) w where w.value = :worker))
   and not exists (select 1 from towpath.run r where r.offer = o.seq and r.worker = :worker)
   and (select count(*) from towpath.run r
         where r.offer = o.seq and r.state in ('running', 'succeeded')) < o.wanted
 order by o.named is null, o.priority, o.seq limit :limit;

-- name: find_offers [postgres]
select o.seq, j.options, j.ttr
  from towpath.offer o join towpath.job j on j.seq = o.seq
 where o.topic in (select value from json_array_elements_text(cast(:topics as json)))
   and o.open_at <= {now}
   and not exists (select 1 from towpath.topic t where t.name = o.topic and t.paused_until > {now})
   and (o.named is null or exists (
        select 1 from json_array_elements_text(cast(o.named as json)) w where w.value = :worker))
   and not exists (select 1 from towpath.run r where r.offer = o.seq and r.worker = :worker)
   and (select count(*) from towpath.run r
         where r.offer = o.seq and r.state in ('running', 'succeeded')) < o.wanted
 order by o.named is null, o.priority, o.seq limit cast(:limit as bigint)
   for update of o skip locked;

-- Counted again now that it is held: another may have started meanwhile, or this one elsewhere.
-- name: still_wanted
select 1 from towpath.offer o where o.seq = :offer
   and not exists (select 1 from towpath.run r where r.offer = o.seq and r.worker = :worker)
   and (select count(*) from towpath.run r
         where r.offer = o.seq and r.state in ('running', 'succeeded')) < o.wanted;

-- name: start_run [sqlite]
insert into towpath.job (id, topic, priority, payload, encoding, ttr, options, created_at, run_at)
select :id, topic, priority, payload, encoding, :ttr, :options, :now, :now
  from towpath.job where seq = :offer returning seq, topic, priority;
insert into towpath.run (offer, worker, job, started_at, state)
values (:offer, :worker, :seq, :now, 'running');
insert into towpath.lease
       (seq, topic, priority, epoch, awaited, reserved_at, token, session, worker, until, started)
values (:seq, :topic, :priority, 1, true, :now, :token, :session, :remote,
        case when :session is null then :now + :ttr end, true);

-- name: start_run [postgres]
with made as (
    insert into towpath.job
           (id, topic, priority, payload, encoding, ttr, options, created_at, run_at)
    select :id, topic, priority, payload, encoding, cast(:ttr as bigint), cast(:options as text),
           {now}, {now}
      from towpath.job where seq = cast(:offer as bigint) returning seq, topic, priority),
ran as (
    insert into towpath.run (offer, worker, job, started_at, state)
    select cast(:offer as bigint), cast(:worker as text), seq, {now}, 'running' from made)
insert into towpath.lease
       (seq, topic, priority, epoch, awaited, reserved_at, token, session, worker, until, started)
select seq, topic, priority, 1, true, {now}, cast(:token as bigint), cast(:session as bigint),
       cast(:remote as text),
       case when cast(:session as bigint) is null then {now} + cast(:ttr as bigint) end, true
  from made;

-- What became of runs that ended: the run itself says how, or is gone. One that is noted already is
-- found again, for whoever noted it may have died before the job was weighed.
-- name: ended_runs [sqlite]
select r.offer, r.job, r.state, l.state,
       (select f.kind from towpath.failure f where f.seq = r.job order by f.epoch desc limit 1)
  from towpath.run r left join towpath.located l on l.seq = r.job
 where r.job = :parent;

-- name: ended_runs [postgres]
select r.offer, r.job, r.state, l.state,
       (select f.kind from towpath.failure f where f.seq = r.job order by f.epoch desc limit 1)
  from towpath.run r left join towpath.located l on l.seq = r.job
 where r.job = any(array(
       select i.parent from json_to_recordset(cast(:items as json)) as i(parent bigint)));

-- name: note_run
update towpath.run set state = :state, ended_at = {now} where job = :job;

-- name: forget_run
delete from towpath.run where job = :job;

-- A run that its job does not know any more is asked to stop.
-- name: forget_runs [sqlite]
delete from towpath.run where offer = :offer returning job;
update towpath.lease set cancelled = true where seq = :job;

-- name: forget_runs [postgres]
with gone as (delete from towpath.run where offer = :offer returning job)
update towpath.lease set cancelled = true where seq = any(array(select job from gone));

-- name: hold_offer [sqlite]
select o.topic, o.wanted, j.options from towpath.offer o join towpath.job j on j.seq = o.seq
 where o.seq = :offer;

-- name: hold_offer [postgres]
select o.topic, o.wanted, j.options from towpath.offer o join towpath.job j on j.seq = o.seq
 where o.seq = :offer for update of o;

-- name: count_runs
select state, count(*) from towpath.run where offer = :offer group by state;

-- name: results_of
select d.result from towpath.run r join towpath.done d on d.seq = r.job
 where r.offer = :offer and r.state = 'succeeded' order by r.ended_at, r.worker;

-- Jobs that failed and are no run that its job knows; its options say whether such a job is a run.
-- name: failed_without_job [sqlite]
select b.seq, j.options from towpath.buried b join towpath.job j on j.seq = b.seq
 where b.seq = :parent and not exists (select 1 from towpath.run r where r.job = b.seq);

-- name: failed_without_job [postgres]
select b.seq, j.options from towpath.buried b join towpath.job j on j.seq = b.seq
 where b.seq = any(array(
       select i.parent from json_to_recordset(cast(:items as json)) as i(parent bigint)))
   and not exists (select from towpath.run r where r.job = b.seq);

-- A run that failed is not kept aside: its failure is one of the job, and says the rest. Where the
-- job is gone, the failure goes too.
-- name: hand_in [sqlite]
update towpath.failure set seq = :offer, epoch = :job
 where seq = :job and exists (select 1 from towpath.job where seq = :offer);
delete from towpath.failure where seq = :job;
delete from towpath.note where seq = :job;
delete from towpath.buried where seq = :job;
delete from towpath.job where seq = :job;

-- name: hand_in [postgres]
with failed as (
    update towpath.failure set seq = cast(:offer as bigint), epoch = cast(:job as bigint)
     where seq = :job and exists (select from towpath.job where seq = :offer)),
forgotten as (
    delete from towpath.failure
     where seq = :job and not exists (select from towpath.job where seq = :offer)),
unsaid as (
    delete from towpath.note where seq = :job),
unburied as (
    delete from towpath.buried where seq = :job)
delete from towpath.job where seq = :job;

-- name: withdraw
delete from towpath.offer where seq = :offer returning seq;

-- name: stop_runs
update towpath.lease set cancelled = true where seq in (
    select job from towpath.run where offer = :offer and state = 'running');

-- name: finish_offer [sqlite]
delete from towpath.blocked where seq = :offer returning {ticket};
delete from towpath.unique_key where topic = :topic and key = :key;
insert into towpath.done ({ticket}, finished_at, prune_at, cancelled, result)
values ({ticket :}, :now, :now + :retention, false, :result);
insert into towpath.ended (parent, completed, result)
select :seq, true, :result where :awaited on conflict do nothing;
select :seq, :awaited;

-- name: finish_offer [postgres]
with gone as (delete from towpath.blocked where seq = :offer returning *),
unkeyed as (
    delete from towpath.unique_key k using gone g where k.topic = g.topic and k.key = g.key),
finished as (
    insert into towpath.done ({ticket}, finished_at, prune_at, cancelled, result)
    select {ticket}, {now}, {now} + cast(:retention as bigint), false, cast(:result as text)
      from gone),
told as (
    insert into towpath.ended (parent, completed, result)
    select seq, true, cast(:result as text) from gone where awaited on conflict do nothing)
select seq, awaited from gone;

-- name: fail_offer [sqlite]
delete from towpath.blocked where seq = :offer returning {ticket};
delete from towpath.unique_key where topic = :topic and key = :key;
insert into towpath.buried ({ticket}, buried_at) values ({ticket :}, :now);
insert into towpath.ended (parent, completed) select :seq, false where :awaited
on conflict do nothing;
select :seq, :awaited;

-- name: fail_offer [postgres]
with gone as (delete from towpath.blocked where seq = :offer returning *),
unkeyed as (
    delete from towpath.unique_key k using gone g where k.topic = g.topic and k.key = g.key),
buried as (
    insert into towpath.buried ({ticket}, buried_at) select {ticket}, {now} from gone),
told as (
    insert into towpath.ended (parent, completed) select seq, false from gone where awaited
    on conflict do nothing)
select seq, awaited from gone;

-- name: runs_of
select r.worker, r.state, r.job, r.started_at, r.ended_at from towpath.run r
 where r.offer = (select seq from towpath.job where id = :id) order by r.started_at, r.worker;

-- name: are_offered [sqlite]
select 1 from towpath.offer where topic in (select value from json_each(:topics)) limit 1;

-- name: are_offered [postgres]
select 1 from towpath.offer
 where topic in (select value from json_array_elements_text(cast(:topics as json))) limit 1;

-- name: job_of
select j.options from towpath.run r join towpath.job j on j.seq = r.offer where r.job = :seq;

-- Those who may not run it any more are asked to stop.
-- name: stop_others [sqlite]
update towpath.lease set cancelled = true where seq in (
    select job from towpath.run where offer = :offer and state = 'running'
       and worker not in (select value from json_each(:named)));

-- name: stop_others [postgres]
update towpath.lease set cancelled = true where seq in (
    select job from towpath.run where offer = :offer and state = 'running'
       and worker not in (
           select value from json_array_elements_text(cast(cast(:named as text) as json))));

-- name: options_of
select options from towpath.job where seq = :seq;
