-- Groups that pass on the outcomes of their parts.
-- oldest: 3

-- The child goes on however this parent ends. Code of before fails it with the parent all the same.
alter table towpath.dependency add column goes_on boolean not null default false;

-- Why the parent ended otherwise; the child waits for it no more, so it counts as completed.
alter table towpath.dependency add column error text;
