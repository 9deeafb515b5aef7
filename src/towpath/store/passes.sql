-- A pass counts once: its id is kept like that of a revoked token, until the pass has expired anyway.
-- name: spend
insert into towpath.revoked_token (id, expires_at) values (:id, :expires_at)
on conflict do nothing returning id;
