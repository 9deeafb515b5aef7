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
-- name: find_offers
select o.seq, j.options, j.ttr
  from towpath.offer o join towpath.job j on j.seq = o.seq
 where o.topic in {names topics} and o.open_at <= {now}
   and not exists (select 1 from towpath.topic t where t.name = o.topic and t.paused_until > {now})
   and (o.named is null or exists (select 1 from {values o.named} w where w.value = :worker))
   and not exists (select 1 from towpath.run r where r.offer = o.seq and r.worker = :worker)
   and (select count(*) from towpath.run r
         where r.offer = o.seq and r.state in ('running', 'succeeded')) < o.wanted
 order by o.named is null, o.priority, o.seq limit cast(:limit as bigint) {skip_locked of o};

-- Counts again now that the offer is held: another worker may have started meanwhile, or this one by
-- another call.
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
values (:offer, :worker, @seq, :now, 'running');
insert into towpath.lease
       (seq, topic, priority, epoch, awaited, reserved_at, token, session, worker, until, started)
values (@seq, @topic, @priority, 1, true, :now, :token, :session, :remote,
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

-- What became of runs that have ended: the job of the run says how, or is gone. A run that is noted
-- already is found again: the process that noted it may have died before it decided about the offered
-- job.
-- name: ended_runs
select r.offer, r.job, r.state as noted, l.state,
       (select f.kind from towpath.failure f where f.seq = r.job order by f.epoch desc limit 1) as kind
  from towpath.run r left join towpath.located l on l.seq = r.job
 where r.job {in_items parent bigint};

-- name: note_run
update towpath.run set state = :state, ended_at = {now} where job = :job;

-- name: forget_run
delete from towpath.run where job = :job;

-- Forgets the runs of a job, and asks those that still run to stop.
-- name: forget_runs [sqlite]
delete from towpath.run where offer = :offer returning job;
update towpath.lease set cancelled = true where seq = @job;

-- name: forget_runs [postgres]
with gone as (delete from towpath.run where offer = :offer returning job)
update towpath.lease set cancelled = true where seq = any(array(select job from gone));

-- name: hold_offer
select o.topic, o.wanted, j.options from towpath.offer o join towpath.job j on j.seq = o.seq
 where o.seq = :offer {for_update of o};

-- name: count_runs
select state, count(*) as number from towpath.run where offer = :offer group by state;

-- name: results_of
select d.result from towpath.run r join towpath.done d on d.seq = r.job
 where r.offer = :offer and r.state = 'succeeded' order by r.ended_at, r.worker;

-- Failed jobs without a row in `run`; the caller reads from their options which of them are runs all the
-- same.
-- name: failed_without_job
select b.seq, j.options from towpath.buried b join towpath.job j on j.seq = b.seq
 where b.seq {in_items parent bigint}
   and not exists (select 1 from towpath.run r where r.job = b.seq);

-- The failure of a run becomes one of the job; where the job is gone, it goes with the run.
-- name: hand_in
update towpath.failure set seq = cast(:offer as bigint), epoch = cast(:job as bigint)
 where seq = :job and exists (select 1 from towpath.job where seq = :offer);

-- name: forget_failed_run [sqlite]
delete from towpath.buried where seq = :job returning seq;
{forget};

-- name: forget_failed_run [postgres]
with gone as (delete from towpath.buried where seq = :job returning seq),
{forget}
select seq from gone;

-- name: withdraw
delete from towpath.offer where seq = :offer returning seq;

-- name: stop_runs
update towpath.lease set cancelled = true where seq in (
    select job from towpath.run where offer = :offer and state = 'running');

-- name: finish_offer [sqlite]
delete from towpath.blocked where seq = :offer returning {ticket};
delete from towpath.unique_key where topic = @topic and key = @key;
insert into towpath.done ({ticket}, finished_at, prune_at, cancelled, result)
values ({ticket @}, :now, :now + :retention, false, :result);
insert into towpath.ended (parent, completed, result)
select @seq, true, :result where @awaited on conflict do nothing;
select @seq as seq, @epoch as epoch, @awaited as awaited;

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
select seq, epoch, awaited from gone;

-- name: fail_offer [sqlite]
delete from towpath.blocked where seq = :offer returning {ticket};
delete from towpath.unique_key where topic = @topic and key = @key;
insert into towpath.buried ({ticket}, buried_at) values ({ticket @}, :now);
insert into towpath.ended (parent, completed) select @seq, false where @awaited
on conflict do nothing;
select @seq as seq, @epoch as epoch, @awaited as awaited;

-- name: fail_offer [postgres]
with gone as (delete from towpath.blocked where seq = :offer returning *),
unkeyed as (
    delete from towpath.unique_key k using gone g where k.topic = g.topic and k.key = g.key),
buried as (
    insert into towpath.buried ({ticket}, buried_at) select {ticket}, {now} from gone),
told as (
    insert into towpath.ended (parent, completed) select seq, false from gone where awaited
    on conflict do nothing)
select seq, epoch, awaited from gone;

-- name: runs_of
select r.worker, r.state, r.job, r.started_at, r.ended_at from towpath.run r
 where r.offer = (select seq from towpath.job where id = :id) order by r.started_at, r.worker;

-- name: are_offered
select 1 from towpath.offer where topic in {names topics} limit 1;

-- name: job_of
select j.options from towpath.run r join towpath.job j on j.seq = r.offer where r.job = :seq;

-- Asks those workers to stop that may not run the job any more.
-- name: stop_others
update towpath.lease set cancelled = true where seq in (
    select job from towpath.run where offer = :offer and state = 'running'
       and worker not in {names named});

-- name: options_of
select options from towpath.job where seq = :seq;
