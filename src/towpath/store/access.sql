-- The rules of access, and the version of accounts, keys and rules.

-- The first statement of every change of an account, a key or a rule: it locks the row, so changes take
-- turns, and each sees what the one before has done.
-- name: raise_version
insert into towpath.access as a (id, version, secret, settings) values (1, 1, :secret, '{}')
on conflict (id) do update set version = a.version + 1;

-- name: begin
insert into towpath.access (id, version, secret, settings) values (1, 1, :secret, '{}')
on conflict (id) do nothing;

-- name: secret
select secret, {now} as now from towpath.access where id = 1;

-- name: version
select version from towpath.access where id = 1;

-- name: get
select settings, version from towpath.access where id = 1;

-- name: change
update towpath.access set settings = :settings where id = 1;
