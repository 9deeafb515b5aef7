-- A pass counts once: its id is kept until it is too old anyway, as that of a token that has ended.
-- name: spend
insert into towpath.revoked_token (id, expires_at) values (:id, :expires_at)
on conflict do nothing returning id;
