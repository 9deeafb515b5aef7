-- API keys.

-- name: create
insert into towpath.api_key (id, created_at, expires_at, name, prefix, hash, scopes, topics, channels)
values (:id, {now}, {now} + cast(:lifetime as bigint), :name, :prefix, :hash, :scopes, :topics,
        :channels);

-- name: get
select id, name, prefix, scopes, topics, channels, created_at, expires_at, used_at
  from towpath.api_key where id = :id;

-- name: verify
select id, name, prefix, scopes, topics, channels, created_at, expires_at, used_at
  from towpath.api_key where hash = :hash and coalesce(expires_at > {now}, true);

-- name: list
select id, name, prefix, scopes, topics, channels, created_at, expires_at, used_at
  from towpath.api_key order by id;

-- name: revoke
delete from towpath.api_key where id = :id returning id;

-- name: used [sqlite]
update towpath.api_key set used_at = :now
 where id = :id and coalesce(used_at <= :now - :rest, true);

-- name: used [postgres]
update towpath.api_key k set used_at = {now}
  from json_to_recordset(cast(:items as json)) as i(id uuid)
 where k.id = i.id and coalesce(k.used_at <= {now} - cast(:rest as bigint), true);
