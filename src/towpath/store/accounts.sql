-- Accounts and their tokens.

-- name: create
insert into towpath.account (id, created_at, updated_at, collection, email, name, password, fields)
values (:id, {now}, {now}, :collection, :email, :name, :password, :fields)
on conflict do nothing returning id;

-- name: get
select id, collection, email, name, fields, generation, created_at, updated_at
  from towpath.account where id = :id and collection = :collection;

-- name: get_by_email
select id, collection, email, name, fields, generation, created_at, updated_at
  from towpath.account where collection = :collection and email = :email;

-- name: list
select id, collection, email, name, fields, generation, created_at, updated_at
  from towpath.account where collection = :collection
 order by id limit cast(:limit as bigint) offset cast(:offset as bigint);

-- name: count
select count(*) from towpath.account where collection = :collection;

-- name: change
update towpath.account
   set email = coalesce(cast(:email as text), email), name = coalesce(cast(:name as text), name),
       fields = coalesce(cast(:fields as text), fields),
       password = coalesce(cast(:password as text), password), updated_at = {now}
 where id = :id and collection = :collection;

-- name: end_tokens
update towpath.account set generation = generation + 1
 where id = :id and collection = :collection returning id;

-- name: delete
delete from towpath.account where id = :id and collection = :collection returning id;

-- name: of_token
select id, collection, email, name, fields, generation, created_at, updated_at
  from towpath.account
 where id = :id and collection = :collection and generation = cast(:generation as bigint)
   and not exists (select 1 from towpath.revoked_token r where r.id in (:token, :login));

-- The id is that of a login, which its tokens name, or that of one token.
-- name: revoke
insert into towpath.revoked_token (id, expires_at) values (:id, :expires_at)
on conflict do nothing;

-- name: prune_tokens
delete from towpath.revoked_token where id in (
    select id from towpath.revoked_token where expires_at <= {now}
     order by expires_at limit cast(:limit as bigint))
returning id;
