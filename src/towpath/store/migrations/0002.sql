-- Who may ask: accounts and their tokens, API keys, and the rules of access.
-- oldest: 1

-- The generation is in every token: who raises it ends them all.
create table towpath.account (
    id         {uuid} not null primary key,
    generation bigint not null default 0,
    created_at bigint not null,
    updated_at bigint not null,
    collection text   not null,
    email      text   not null,
    name       text   not null,
    password   text   not null,
    fields     text   not null,
    unique (collection, email)
) {without_rowid};

create table towpath.revoked_token (
    id         {uuid} not null primary key,
    expires_at bigint not null
) {without_rowid};
create index towpath_revoked_token_age on towpath.revoked_token (expires_at);

create table towpath.api_key (
    id         {uuid} not null primary key,
    created_at bigint not null,
    expires_at bigint,
    used_at    bigint,
    name       text   not null,
    prefix     text   not null,
    hash       text   not null unique,
    scopes     text   not null,
    topics     text   not null
) {without_rowid};

-- As with the rate of a limit: the instant up to which what was tried is paid for.
create table towpath.login_attempt (
    key text   not null primary key,
    tat bigint not null
) {without_rowid};
create index towpath_login_attempt_age on towpath.login_attempt (tat);

-- One row, which every change of who may ask raises and so holds: such changes take turns.
create table towpath.access (
    id       {number} not null primary key,
    version  bigint   not null,
    secret   text     not null,
    settings text     not null
) {without_rowid};
