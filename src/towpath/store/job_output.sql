-- What a job says of itself while it runs.

-- The lease is held until the note is written, so that nothing is said for a job that was taken
-- back. A note that was written already, by a call whose answer was lost, is written once.
-- name: write [sqlite]
insert into towpath.note (seq, kind, no, epoch, at, share, text)
select :seq, :kind, :no, :epoch, :now, :share, :text
  from towpath.lease where seq = :seq and epoch = :epoch
on conflict (seq, kind, no) do update
   set epoch = excluded.epoch, at = excluded.at, share = excluded.share, text = excluded.text
returning :nth as nth;

-- name: write [postgres]
with item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           nth integer, seq bigint, epoch bigint, kind text, no bigint,
           share double precision, text text)),
held as materialized (
    select l.seq, l.epoch from towpath.lease l
     where l.seq = any(array(select seq from item)) for key share),
fenced as materialized (
    select i.* from item i join held h on h.seq = i.seq and h.epoch = i.epoch),
written as (
    insert into towpath.note (seq, kind, no, epoch, at, share, text)
    -- Of two notes with one number the later holds; PostgreSQL would refuse the statement.
    select distinct on (seq, kind, no) seq, kind, no, epoch, {now}, share, text from fenced
     order by seq, kind, no, nth desc
    on conflict (seq, kind, no) do update
       set epoch = excluded.epoch, at = excluded.at, share = excluded.share, text = excluded.text)
select nth from fenced;

-- name: drop_oldest [sqlite]
delete from towpath.note where seq = :seq and kind = :kind and no <= (
    select max(no) from (
        select no, row_number() over newest as place,
               sum(length(cast(text as blob))) over newest as bytes
          from towpath.note where seq = :seq and kind = :kind window newest as (order by no desc))
     where place > :most or bytes > :most_bytes);

-- name: drop_oldest [postgres]
with item as materialized (
    select * from json_to_recordset(cast(:items as json)) as i(
           seq bigint, kind text, most bigint, most_bytes bigint)),
oldest as materialized (
    select i.seq, i.kind, o.no from item i, lateral (
        select max(no) as no from (
            select n.no, row_number() over newest as place,
                   sum(octet_length(n.text)) over newest as bytes
              from towpath.note n where n.seq = i.seq and n.kind = i.kind
            window newest as (order by n.no desc)) as numbered
         where place > i.most or bytes > i.most_bytes) as o
     where o.no is not null)
delete from towpath.note n using oldest o
 where n.seq = any(array(select seq from oldest))
   and n.seq = o.seq and n.kind = o.kind and n.no <= o.no;

-- name: find
select seq from towpath.job where id = :id;

-- name: read
select no, epoch, text, at from towpath.note
 where seq = :seq and kind = :kind order by no limit :limit;
