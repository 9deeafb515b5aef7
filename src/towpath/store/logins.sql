-- Logins: how often one may be tried, and whether a password is still the one that was tried.

-- name: password
select id, password from towpath.account where collection = :collection and email = :email;

-- name: account
select id, collection, email, name, fields, generation, created_at, updated_at
  from towpath.account where id = :id and password = :password;

-- name: rehash
update towpath.account set password = :password where id = :id and password = :was;

-- The row stores when all tries so far are paid. A try adds its pace; that time may be at most `room`
-- ahead of the clock. If it is further ahead, the clock was set back, and the debt is forgiven. The ten
-- seconds allow for PostgreSQL's clock, which is that of the begin of the statement: it may have waited
-- for the row. Rows are locked in the order of their keys, so that two logins do not deadlock.
-- name: charge [sqlite]
insert into towpath.login_attempt as a (key, tat) values (:key, :now + :pace)
on conflict (key) do update
   set tat = case when a.tat > :now + :room + 10000000 then :now else max(a.tat, :now) end + :pace
 where a.tat > :now + :room + 10000000 or max(a.tat, :now) + :pace <= :now + :room returning key;

-- name: charge [postgres]
insert into towpath.login_attempt as a (key, tat)
select key, {now} + pace from json_to_recordset(cast(:items as json)) as i(
       key text, pace bigint, room bigint) order by key
on conflict (key) do update
   set tat = case when a.tat > {now} + 10000000 + (
       select i.room from json_to_recordset(cast(:items as json)) as i(key text, room bigint)
        where i.key = a.key) then {now} else greatest(a.tat, {now}) end + (excluded.tat - {now})
 where (select a.tat > {now} + i.room + 10000000
            or greatest(a.tat, {now}) + (excluded.tat - {now}) <= {now} + i.room
          from json_to_recordset(cast(:items as json)) as i(key text, room bigint)
         where i.key = a.key)
returning key;

-- name: owed
select {now} + i.room - i.pace as "limit", a.tat
  from {items i(key text, pace bigint, room bigint)} join towpath.login_attempt a on a.key = i.key;

-- Locks the rows in the same order as `charge`, so that two logins do not deadlock.
-- name: hold [postgres]
select key from towpath.login_attempt where key {in_items key text} order by key for update;

-- name: forgive
delete from towpath.login_attempt where key {in_items key text};

-- name: refund [sqlite]
update towpath.login_attempt set tat = tat - :pace where key = :key;

-- name: refund [postgres]
update towpath.login_attempt a set tat = a.tat - i.pace
  from json_to_recordset(cast(:items as json)) as i(key text, pace bigint) where a.key = i.key;

-- name: prune_attempts
delete from towpath.login_attempt where key in (
    select key from towpath.login_attempt where tat <= {now}
     order by tat limit cast(:limit as bigint))
returning key;
