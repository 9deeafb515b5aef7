"""Logins, accounts, keys and rules over HTTP; logins and accounts as in PocketBase's API."""

from collections.abc import Mapping
from datetime import datetime
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Annotated, Any, Final
from urllib.parse import quote

from msgspec import UNSET, Meta, UnsetType, field

from towpath.app.access import AccessChanges
from towpath.errors import Invalid, InvalidToken
from towpath.model.access import Access
from towpath.model.accounts import Account, Collection
from towpath.model.keys import ApiKey, KeyScope
from towpath.server.authentication import COOKIE, record_of, refuse_cross_site, token_of
from towpath.server.bodies import cookie
from towpath.server.inputs import ChannelName, Input, Seconds, Text, Topic
from towpath.server.outputs import Items, ResponseBody, shown
from towpath.server.request import Request
from towpath.server.routes import Answer, Routes

routes: Final = Routes("accounts")
keys: Final = Routes("keys")
access: Final = Routes("access")

CHANGED_BY_USER: Final = {"name", "password", "passwordConfirm", "oldPassword"}
BUILT_IN: Final = {"email", *CHANGED_BY_USER}  # all others are custom fields
READ_ONLY: Final = {"id", "collectionId", "collectionName", "created", "updated"}

Email = Annotated[str, Meta(extra_json_schema={"format": "email", "maxLength": 254})]
Password = Annotated[str, Meta(extra_json_schema={"minLength": 8, "maxLength": 1_000})]
TEXT: Final = {"type": "string"}
WRITTEN: Final = {
    "email": {"type": "string", "format": "email"},
    "password": {"type": "string", "minLength": 8, "maxLength": 1_000},
    "passwordConfirm": TEXT,
    "name": {"type": "string", "maxLength": 200},
}
SHOWN: Final = {
    "id": TEXT,
    "collectionId": TEXT,
    "collectionName": {"enum": [*map(str, Collection)]},
    "email": TEXT,
    "name": TEXT,
    "created": {"type": "string", "format": "date-time"},
    "updated": {"type": "string", "format": "date-time"},
}


def _record(title: str, description: str, properties: Mapping[str, Any], *required: str) -> Meta:
    """Describe an object that has these properties, and the custom fields of an account."""
    schema: dict[str, Any] = {"properties": properties}
    if required:
        schema["required"] = list(required)
    return Meta(title=title, description=description, extra_json_schema=schema)


Record = Annotated[
    dict[str, Any],
    _record(
        "Record",
        "An account, with its custom fields.",
        SHOWN,
        *("id", "collectionId", "collectionName", "email", "name"),
    ),
]
NewRecord = Annotated[
    dict[str, Any],
    _record(
        "NewRecord",
        "An account to create; all other properties are its custom fields.",
        WRITTEN,
        *("email", "password"),
    ),
]
RecordChange = Annotated[
    dict[str, Any],
    _record(
        "RecordChange",
        "Changes of an account; null removes a custom field.",
        {**WRITTEN, "oldPassword": TEXT},
    ),
]


class Login(Input):
    """The e-mail address and password of an account."""

    identity: str  # an e-mail address
    password: str
    cookie: bool = False  # also set a cookie that scripts cannot read


class LoggedIn(ResponseBody):
    """A token and its account."""

    token: str
    record: Record


class Numbered(Input):
    """A page number and the size of a page."""

    page: Annotated[int, Meta(ge=1, le=10**6)] = 1
    per_page: Annotated[int, Meta(ge=1, le=1_000)] = 30
    skip_total: bool = False  # do not count all records


class Records(ResponseBody):
    """A page of records, oldest first."""

    page: int
    per_page: int
    total_items: int  # -1 with `skipTotal`
    total_pages: int  # -1 with `skipTotal`
    items: list[Record]


class KeyInput(Input):
    """An API key to create."""

    name: Text
    scopes: Annotated[list[KeyScope], Meta(extra_json_schema={"minItems": 1})]
    topics: list[Topic] = field(default_factory=list)
    channels: list[ChannelName] = field(default_factory=list)  # how the names of channels begin
    expires_in: Seconds | None = None


class KeyShown(ResponseBody):
    """An API key, without its secret."""

    id: str
    name: str
    prefix: str
    scopes: list[KeyScope]
    topics: list[str]
    channels: list[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


class MadeKey(KeyShown):
    """A new API key; its secret cannot be read again."""

    secret: str


class TopicRules(Input, rename=None):
    """The rules of one topic; the general rule applies where one is null."""

    enqueue_rule: str | None = None
    manage_rule: str | None = None
    work_rule: str | None = None


class ChannelRules(Input, rename=None):
    """The rules of channels whose names begin with a text; null: those of a shorter text hold."""

    publish_rule: str | None = None
    subscribe_rule: str | None = None
    manage_rule: str | None = None


class AccessChange(Input, rename=None):
    """Changes of the rules; `access_rule` sets both enqueue_rule and manage_rule."""

    access_rule: str | UnsetType = UNSET
    enqueue_rule: str | UnsetType = UNSET
    manage_rule: str | UnsetType = UNSET
    work_rule: str | UnsetType = UNSET
    webhook_rule: str | UnsetType = UNSET
    http_enabled: bool | UnsetType = UNSET
    allowed_topics: list[Topic] | UnsetType = UNSET
    topics: dict[Topic, TopicRules | None] | UnsetType = UNSET  # null removes a topic's rules
    channels: dict[str, ChannelRules | None] | UnsetType = UNSET  # by how the names begin


class AccessShown(ResponseBody, rename=None):
    """The access rules. An empty rule allows superusers only."""

    enqueue_rule: str
    manage_rule: str
    work_rule: str
    webhook_rule: str
    http_enabled: bool
    allowed_topics: list[str]
    topics: dict[str, TopicRules]
    channels: dict[str, ChannelRules]


@routes.post(
    "/api/collections/{collection}/auth-with-password",
    is_open=True,
    errors=("login_refused", "too_many_logins", "csrf_refused"),
)
async def log_in(request: Request, collection: Collection, body: Login) -> Answer[LoggedIn]:
    """Log in with an e-mail address and a password."""
    if body.cookie:
        refuse_foreign_cookie(request)
    account, token = await request.app.accounts.alogin(
        collection, body.identity, body.password, client=network_of(request.client)
    )
    return logged_in(request, account, token, as_cookie=body.cookie)


@routes.post("/api/collections/{collection}/auth-refresh", errors=("invalid_token",))
async def refresh(request: Request, collection: Collection) -> Answer[LoggedIn]:
    """Exchange a token for a new one of the same login; the old one works until it expires."""
    token, as_cookie = _own_token(request, collection)
    account, fresh = await request.app.accounts.arefresh(token)
    return logged_in(request, account, fresh, as_cookie=as_cookie)


@routes.post("/api/collections/{collection}/auth-logout", status=204, errors=("invalid_token",))
async def log_out(request: Request, collection: Collection) -> Answer[None]:
    """End this login and remove its cookie.

    All tokens of the same login end, also refreshed ones. Other logins of the account continue.
    """
    token, _ = _own_token(request, collection)
    await request.app.accounts.arevoke(token)
    return Answer(None, headers=(_cookie(request, "", 0),))


def network_of(client: str) -> str:
    """Return the address of a client; for IPv6 its /64 network, in which it can use any address."""
    try:
        address = ip_address(client)
    except ValueError:
        return client
    if isinstance(address, IPv4Address):
        return client
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, 64), strict=False))


def _own_token(request: Request, collection: Collection) -> tuple[str, bool]:
    if request.caller.auth.get("collectionName") != collection:
        msg = f"this token is not of an account in {collection.value}; log in there first"
        raise InvalidToken(msg)
    return token_and_place(request)


def token_and_place(request: Request) -> tuple[str, bool]:
    """Return the token of the caller, and whether it came in a cookie."""
    token = token_of(request.headers)
    return (token, False) if token else (cookie(request.headers, COOKIE) or "", True)


def refuse_foreign_cookie(request: Request) -> None:
    """Refuse a page of another site that would set our cookie."""
    if not request.headers.keys().isdisjoint({b"origin", b"sec-fetch-site"}):
        refuse_cross_site("POST", request.headers)


def logged_in(
    request: Request, account: Account, token: str, *, as_cookie: bool
) -> Answer[LoggedIn]:
    """Answer a login; with its cookie, if the caller wants one."""
    body = LoggedIn(token=token, record=record_of(account))
    header = _cookie(request, token, int(request.app.settings.token_lifetime))
    return Answer(body, headers=(header,) if as_cookie else ())


def _cookie(request: Request, token: str, seconds: int) -> tuple[bytes, bytes]:
    secure = "; Secure" if request.scope["scheme"] == "https" else ""
    # Of two servers at one host, each below its own path, none gets the cookie of the other.
    path = quote(request.scope.get("root_path", "")) or "/"
    text = f"{COOKIE}={token}; HttpOnly; SameSite=Lax; Path={path}; Max-Age={seconds}{secure}"
    return b"set-cookie", text.encode()


@routes.get("/api/collections/{collection}/records")
async def list_records(request: Request, collection: Collection, query: Numbered) -> Records:
    """Read a page of accounts, oldest first."""
    request.require_superuser()
    total = -1 if query.skip_total else await request.app.accounts.acount(collection)
    found = await request.app.accounts.alist(
        collection, limit=query.per_page, offset=(query.page - 1) * query.per_page
    )
    return Records(
        page=query.page,
        per_page=query.per_page,
        total_items=total,
        total_pages=-(-total // query.per_page),
        items=[record_of(account) for account in found],
    )


@routes.post("/api/collections/{collection}/records", status=201, errors=("account_exists",))
async def create_record(request: Request, collection: Collection, body: NewRecord) -> Record:
    """Create an account."""
    request.require_superuser()
    for name in ("email", "password"):
        if not isinstance(body.get(name), str):
            msg = f"`{name}` is required and must be a string"
            raise Invalid(msg)
    _check_confirmed(body)
    created = await request.app.accounts.acreate(
        collection,
        body["email"],
        body["password"],
        name=body.get("name", ""),
        fields=_custom_fields(body),
    )
    await request.acted("account.created", collection=collection, account=created.id)
    return record_of(created)


@routes.get("/api/collections/{collection}/records/{id}")
async def get_record(request: Request, collection: Collection, id: str) -> Record:
    """Read an account; users may read their own."""
    if not _is_own(request, collection, id):
        request.require_superuser()
    return record_of(await request.app.accounts.aget(collection, id))


@routes.patch(
    "/api/collections/{collection}/records/{id}",
    errors=("account_exists", "login_refused", "too_many_logins"),
)
async def change_record(
    request: Request, collection: Collection, id: str, body: RecordChange
) -> Record:
    """Change an account. A new password ends all its tokens.

    Users may change their own name, and with `oldPassword` their own password.
    """
    if not _is_own(request, collection, id) or body.keys() - CHANGED_BY_USER:
        request.require_superuser()
    _check_confirmed(body)
    if body.get("password") is not None and request.caller.kind != "superuser":
        await _require_old_password(request, collection, id, body)
    changed = await request.app.accounts.aupdate(
        collection,
        id,
        email=body.get("email"),
        password=body.get("password"),
        name=body.get("name"),
        fields=_custom_fields(body),
    )
    named = sorted(body.keys() & BUILT_IN)
    await request.acted("account.changed", collection=collection, account=id, changed=named)
    return record_of(changed)


@routes.delete("/api/collections/{collection}/records/{id}", status=204, errors=("conflict",))
async def delete_record(request: Request, collection: Collection, id: str) -> None:
    """Delete an account and end its tokens; the last superuser cannot be deleted."""
    request.require_superuser()
    await request.app.accounts.adelete(collection, id)
    await request.acted("account.deleted", collection=collection, account=id)


async def _require_old_password(
    request: Request, collection: Collection, id: str, body: Mapping[str, Any]
) -> None:
    if not isinstance(body.get("oldPassword"), str):
        msg = "`oldPassword` is required, as a string, to change the password"
        raise Invalid(msg)
    account = await request.app.accounts.aget(collection, id)
    await request.app.accounts.alogin(
        collection, account.email, body["oldPassword"], client=network_of(request.client)
    )


def _is_own(request: Request, collection: Collection, id: str) -> bool:
    return (request.caller.auth["id"], request.caller.auth["collectionName"]) == (id, collection)


def _check_confirmed(body: Mapping[str, Any]) -> None:
    if "passwordConfirm" in body and body["passwordConfirm"] != body.get("password"):
        msg = "`passwordConfirm` differs from `password`"
        raise Invalid(msg)


def _custom_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    if "fields" in body:
        msg = "give custom fields beside `email`, not in `fields`"
        raise Invalid(msg)
    for name in READ_ONLY & body.keys():
        msg = f"`{name}` cannot be set"
        raise Invalid(msg)
    return {name: value for name, value in body.items() if name not in BUILT_IN}


@keys.get("/api/keys")
async def list_keys(request: Request) -> Items[KeyShown]:
    """Read all API keys, without their secrets."""
    request.require_superuser()
    return Items(items=[_key(key) for key in await request.app.keys.alist()])


@keys.post("/api/keys", status=201)
async def create_key(request: Request, body: KeyInput) -> MadeKey:
    """Create an API key; its secret is shown only in this answer."""
    request.require_superuser()
    key, secret = await request.app.keys.acreate(
        body.name,
        scopes=body.scopes,
        topics=body.topics,
        channels=body.channels,
        expires_in=body.expires_in,
    )
    await request.acted("key.created", key=key.id, name=key.name)
    made = {name: getattr(key, name) for name in KeyShown.__struct_fields__}
    return MadeKey(**made, secret=secret)


@keys.delete("/api/keys/{id}", status=204)
async def revoke_key(request: Request, id: str) -> None:
    """Revoke an API key."""
    request.require_superuser()
    await request.app.keys.arevoke(id)
    await request.acted("key.revoked", key=id)


def _key(key: ApiKey) -> KeyShown:
    return shown(KeyShown, key)


@access.get("/api/access")
async def get_access(request: Request) -> AccessShown:
    """Read the access rules."""
    request.require_superuser()
    return _access(await request.app.access.aget())


@access.patch("/api/access", errors=("invalid_rule",))
async def set_access(request: Request, body: AccessChange) -> AccessShown:
    """Change the access rules that are given; they apply at once, on every instance."""
    request.require_superuser()
    changes = access_changes(body)
    changed = await request.app.access.aset(**changes)
    # Not the rules themselves: they may name secrets.
    await request.acted("access.changed", changed=sorted(changes))
    return _access(changed)


def access_changes(body: AccessChange) -> AccessChanges:
    """Return the changes that a body gives."""
    changes: AccessChanges = {}
    for name in AccessChange.__struct_fields__:
        value = getattr(body, name)
        if value is not UNSET:
            changes[name] = value  # type: ignore[literal-required] # both have the same names
    if body.topics is not UNSET:
        changes["topics"] = {topic: _given_rules(rules) for topic, rules in body.topics.items()}
    if body.channels is not UNSET:
        changes["channels"] = {name: _given_rules(each) for name, each in body.channels.items()}
    return changes


def _given_rules(rules: TopicRules | ChannelRules | None) -> dict[str, str | None] | None:
    if rules is None:
        return None
    named = {name: getattr(rules, name) for name in rules.__struct_fields__}
    return {name: rule for name, rule in named.items() if rule is not None}


def _access(found: Access) -> AccessShown:
    return shown(AccessShown, found)
