"""Whatever is sent: a clear refusal in the one shape, nothing stored, and no error logged."""

import asyncio
import json
import logging
from urllib.parse import unquote
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.sizes import many
from tests.server.conftest import Web, refused, token_of
from towpath import App
from towpath.server.api import ROUTES

JOB = "/api/jobs/enqueue"
BULK = "/api/jobs/enqueue-many"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def any_web(loop):
    """The API on memory, asked by a superuser."""
    with App("memory://") as app:
        web = Web(app, loop)
        web.root = token_of(app, "_superusers", "root@example.org")
        yield web
        web.close()


@pytest.fixture
def web(loop, caplog, quick_passwords, any_web):
    """The API, which stores nothing and has no fault of its own, whatever a test sends."""
    before = stored(any_web.app)
    with caplog.at_level(logging.WARNING):
        yield any_web
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
    assert stored(any_web.app) == before


def stored(app):
    accounts = app.accounts.list("users") + app.accounts.list("_superusers")
    return app.jobs.list(), app.schedules.list(), app.keys.list(), app.access.get(), accounts


def send(web, body, path=JOB, method="POST", **headers):
    return web(method, path, content=body, as_=web.root, headers={**JSON, **headers})


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
@pytest.mark.parametrize(
    ("path", "size"), [(JOB, 2**20 * 4 // 3 + 2**16 + 1), (BULK, 16 * 2**20 + 1)]
)
def test_an_envelope_that_is_too_large_is_refused(web, path, size, chunked):
    body = b'{"topic":"a","payload":"' + b"x" * (size - 26) + b'"}'

    async def chunks():
        for start in range(0, len(body), 2**16):
            yield body[start : start + 2**16]

    said = send(web, chunks() if chunked else body, path)

    assert refused(said) == (413, "body_too_large")


@pytest.mark.parametrize("length", ["1e3", "-1", "+5", "0x10", "\uff19", "", "9" * 30])
def test_a_length_that_is_none_is_refused(web, length):
    said = send(web, b'{"topic": "a"}', **{"content-length": length.encode()})

    assert refused(said) == (413, "body_too_large")


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**21, 2**25])
@pytest.mark.parametrize("path", [JOB, BULK])
def test_a_payload_over_the_limit_has_one_status_whatever_its_size(web, path, size):
    """EC-1"""
    job = {"topic": "a", "payload": "x" * size}

    said = send(web, json.dumps(job if path == JOB else {"jobs": [{"topic": "b"}, job]}), path)

    status, code = refused(said)
    assert status == 413
    assert code in {"payload_too_large", "body_too_large"}


BAD_JSON = {
    "nothing": b"",
    "blanks": b"  \n ",
    "truncated": b'{"topic": "a", "payload": [1, 2',
    "truncated text": b'{"topic": "a',
    "truncated escape": b'{"topic": "\\u00',
    "two values": b'{"topic": "a"} {"topic": "b"}',
    "a comma too many": b'{"topic": "a",}',
    "a comment": b'{"topic": "a" /* or b */}',
    "single quotes": b"{'topic': 'a'}",
    "a byte order mark": b'\xef\xbb\xbf{"topic": "a"}',
    "UTF-16": '{"topic": "a"}'.encode("utf-16"),
    "no UTF-8": b'{"topic": "a", "payload": "\xff\xfe"}',
    "overlong UTF-8": b'{"topic": "a", "payload": "\xc0\xaf"}',
    "surrogates in UTF-8": b'{"topic": "a", "payload": "\xed\xa0\x80"}',
    "a control character": b'{"topic": "a", "payload": "\x01"}',
    "NaN": b'{"topic": "a", "payload": NaN}',
    "NaN deep inside": b'{"topic": "a", "payload": [{"x": NaN}]}',
    "Infinity": b'{"topic": "a", "payload": -Infinity}',
    "NaN as a delay": b'{"topic": "a", "delay": NaN}',
    "a leading zero": b'{"topic": "a", "payload": 007}',
    "huge integers": b'{"topic": "a", "payload": ' + b"9" * 5_000 + b"}",
    "deep lists": b'{"topic": "a", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"topic": "a", "payload": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    "a deep envelope": b"[" * 100_000 + b"]" * 100_000,
    "deep and cut off": b"[" * 1_000_000,
    "equal names": b'{"topic": "a", "topic": "b"}',
    "equal names once escaped": b'{"topic": "a", "to\\u0070ic": "b"}',
    "equal names deep inside": b'{"topic": "a", "limit": {"key": "a", "key": "b"}}',
    "equal names in the payload": b'{"topic": "a", "payload": {"x": [{"y": 1, "y": 1}]}}',
    "equal names in headers": b'{"topic": "a", "headers": {"h": "1", "h": "2"}}',
}


@pytest.mark.parametrize("body", BAD_JSON.values(), ids=BAD_JSON)
def test_a_body_that_is_not_json_is_refused(web, body):
    assert refused(send(web, body)) == (400, "bad_json")


def test_equal_names_are_told(web):
    said = send(
        web, b'{"jobs": [{"topic": "a"}, {"topic": "a", "payload": {"k": 1, "k": 2}}]}', BULK
    )

    assert refused(said) == (400, "bad_json")
    assert "'k'" in said.json()["message"]


NOT_STORABLE = {
    "a lone surrogate": (b'{"topic": "a", "payload": "\\ud800"}', "bad_json"),
    "a lone surrogate as a name": (b'{"topic": "a", "payload": {"\\udc00": 1}}', "bad_json"),
    "a number beyond all bounds": (b'{"topic": "a", "payload": 1e999}', "invalid_payload"),
    "such a delay": (b'{"topic": "a", "delay": 1e999}', "invalid"),
    "a delay of ages": (b'{"topic": "a", "delay": 1e300}', "invalid"),
    "a huge priority": (b'{"topic": "a", "priority": 99999999999999999999999}', "invalid"),
    "NUL in a key": (b'{"topic": "a", "key": "\\u0000"}', "invalid"),
    "NUL in a topic": (b'{"topic": "a\\u0000"}', "invalid_topic"),
    "NUL in base64": (
        b'{"topic": "a", "encoding": "base64", "payload": "\\u0000"}',
        "invalid_payload",
    ),
}


@pytest.mark.parametrize(("body", "code"), NOT_STORABLE.values(), ids=NOT_STORABLE)
def test_what_cannot_be_stored_is_refused(web, body, code):
    assert refused(send(web, body)) == (400, code)


WRONG = [
    ([], None),
    ("text", None),
    (5, None),
    (None, None),
    ({}, None),
    ({"topic": 5}, "topic"),
    ({"topic": None}, "topic"),
    ({"topic": "a", "priority": "5"}, "priority"),
    ({"topic": "a", "priority": 1.5}, "priority"),
    ({"topic": "a", "priority": True}, "priority"),
    ({"topic": "a", "delay": "60"}, "delay"),
    ({"topic": "a", "runAt": "tomorrow"}, "runAt"),
    ({"topic": "a", "runAt": "2026-11-15T12:00:00"}, "runAt"),
    ({"topic": "a", "id": "7"}, "id"),
    ({"topic": "a", "after": "7"}, "after"),
    ({"topic": "a", "after": ["7"]}, "after[0]"),
    ({"topic": "a", "headers": {"a": 5}}, "headers[...]"),
    ({"topic": "a", "limit": {"key": "k", "concurrency": "2"}}, "limit.concurrency"),
    ({"topic": "a", "encoding": "hex"}, "encoding"),
    ({"topic": "a", "unique": "sometimes"}, "unique"),
    ({"topic": "a", "pri\nority": 5}, "pri\nority"),
    ({"topic": "a", "run_at": None}, "run_at"),
    ({"topic": "a", "limit": {"key": "k", "rat": "1/s"}}, "limit.rat"),
]


@pytest.mark.parametrize(("body", "field"), WRONG, ids=str)
def test_a_field_that_is_wrong_or_unknown_is_named(web, body, field):
    said = send(web, json.dumps(body))

    assert refused(said) == (400, "invalid")
    assert said.json()["details"] == {"field": field}


def test_a_wrong_field_among_many_jobs_is_named(web):
    said = send(web, json.dumps({"jobs": [{"topic": "a"}, {"topic": "a", "color": 1}]}), BULK)

    assert said.json()["details"] == {"field": "jobs[1].color"}
    said = send(web, json.dumps({"job": []}), BULK)
    assert said.json()["message"] == "job: unknown field; known fields: jobs"


TAKES_FIELDS = [
    route for route in ROUTES if route.takes and "Record" not in str(route.takes)
]  # an account has fields of its own


@pytest.mark.parametrize("route", TAKES_FIELDS, ids=lambda route: f"{route.method} {route.path}")
def test_no_route_takes_unknown_fields(web, route):
    said = send(web, b'{"nobodyKnows": 1}', filled(route.path), route.method)

    assert refused(said) == (400, "invalid")
    assert said.json()["details"] == {"field": "nobodyKnows"}


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
@pytest.mark.parametrize("path", [JOB, BULK, "/api/keys"])
def test_another_kind_of_content_is_refused(web, media, path):
    said = send(web, b"topic=a", path, **{"content-type": media})

    assert refused(said) == (415, "unsupported_media_type")


def test_more_than_one_problem_with_an_idempotency_key_is_told(web):
    for key in ("a b", "", "x" * 256, "\xe9"):
        said = send(web, b'{"topic": "a"}', **{"idempotency-key": key.encode("latin-1")})
        assert refused(said) == (400, "invalid")
    both = json.dumps({"topic": "a", "id": str(uuid4())}).encode()
    assert refused(send(web, both, **{"idempotency-key": "k"})) == (400, "invalid")


RESULTS = {
    "beyond all bounds": b"[1e999]",
    "a lone surrogate": b'"\\ud800"',
    "too deep": b"[" * 985 + b"]" * 985,
    "too large": b'"' + b"x" * 2**20 + b'"',
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_a_result_that_cannot_be_stored_is_refused(any_web, quick_passwords, result):
    web = any_web
    job = web.app.jobs.enqueue("results")
    [lease] = web.app.jobs.reserve("results")

    body = b'{"epoch": 1, "result": %s}' % result
    said = send(web, body, f"/api/jobs/{job.id}/complete")

    assert refused(said)[0] == (413 if result is RESULTS["too large"] else 400)
    assert web.app.jobs.get(job.id).status == "processing"
    web.app.jobs.complete(lease)


# ---------------------------------------------------------------- paths


def filled(path, **values):
    known = {
        "id": uuid4(), "number": 1, "topic": "mail", "name": "daily", "collection": "users",
        "consumer": "mailer", "subscription": 1, "saga": 1, "letter": 1, "session": 1,
    }  # fmt: skip
    return path.format(**{**known, **values})


WITH_ID = [route for route in ROUTES if "{id}" in route.path]
BAD_IDS = ["1", "null", "%20", "{}", str(uuid4())[:-1], f"{{{uuid4()}}}", "%00", "é", "x" * 5_000]


@pytest.mark.parametrize("route", WITH_ID, ids=lambda route: f"{route.method} {route.path}")
def test_what_is_no_id_is_refused_on_every_route(web, route):
    """The id of a job or a bulk act is a UUID; other ids are text that names nothing."""
    is_uuid = route.path_types["id"] is UUID
    expected = (400, "invalid") if is_uuid else (404, "not_found")
    for id in BAD_IDS:
        said = web(route.method, filled(route.path, id=id), {"epoch": 1}, as_=web.root)
        if route.takes:  # which may be wrong as well
            assert said.status_code in {400, 404}, id
            refused(said)
        else:
            assert refused(said) == expected, id


@pytest.mark.parametrize(
    "path",
    [
        "//",
        "/api",
        "/api/",
        "/api/jobs/",
        "//api/jobs",
        "/api//jobs",
        "/api/jobs//requeue",
        "/api/jobs/../jobs",
        "/api/jobs/%2e%2e/keys",
        "/api/topics/a%2Fb/pause",
        "/api/topics/../jobs/pause",
        "/API/jobs",
        "/api/jobs;a=1",
        "/api/jobs%00",
        "/api/jobs/stats/",
        "/api/jobs/stats/more",
        "/{}",
        "/api/{}",
        "/api/%7B%7D",
        "/\xff",
        "/%ff%fe",
        "/healthz/",
        "/" + "a/" * 5_000,
        "/api/collections/admins/records",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_there_is_nothing_at_other_paths(web, method, path):
    said = raw(web, method, path)

    assert said == (404, "not_found") or (method == "POST" and said == (400, "bad_json"))


def raw(web, method, path, query=b"", headers=()):
    """Ask for a path as it stands, which a client would put in order first."""

    async def asked():
        told = []
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "query_string": query,
            "headers": [(b"authorization", f"Bearer {web.root}".encode()), *headers],
            "client": ("127.0.0.1", 1),
            "scheme": "http",
        }
        await web.api(scope, lambda: _message({"type": "http.request"}), lambda m: _kept(told, m))
        status, body = told[0]["status"], told[1]["body"]
        return status, json.loads(body)["code"] if status >= 400 else None

    return asyncio.run_coroutine_threadsafe(asked(), web._loop).result()


async def _message(message):
    return message


async def _kept(told, message):
    told.append(message)


def test_an_escaped_slash_is_a_slash(web):
    """As ASGI has it; so no name can hold one."""
    assert raw(web, "GET", "/api/jobs%2Fstats") == (200, None)


@pytest.mark.parametrize(
    "method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get", "é", ""]
)
def test_other_methods_are_refused_and_the_known_ones_told(web, method):
    assert raw(web, method, "/api/jobs") == (405, "method_not_allowed")


def test_the_methods_that_a_path_knows_are_told(web):
    said = web("PUT", f"/api/jobs/{uuid4()}")

    assert refused(said) == (405, "method_not_allowed")
    assert said.headers["allow"] == "DELETE, GET, HEAD, PATCH"


@pytest.mark.parametrize("topic", ["a b", "a.b", "é", "%00", "x" * 201, "%F0%9F%8C%8A", "{}"])
@pytest.mark.parametrize("verb", ["pause", "resume", "kick", "purge"])
def test_a_topic_in_a_path_is_checked(web, topic, verb):
    said = web.post(f"/api/topics/{topic}/{verb}", as_=web.root)

    assert refused(said) == (400, "invalid_topic")


@pytest.mark.parametrize("name", ["%00", "x" * 10_000, "%ed%a0%80%00"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_the_name_of_a_schedule_is_checked(web, name, method):
    body = {"topic": "a", "every": 60} if method == "PUT" else None
    said = web(method, f"/api/schedules/{name}", body, as_=web.root)

    assert refused(said)[0] in {400, 404}


# ---------------------------------------------------------------- queries


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1", "limit=0", "limit=1001", "limit=1e3", "limit=1.0", "limit=", "limit=ten",
        "limit=0x10", "limit=%EF%BC%95", "limit=1_0", "limit=+5", "limit=5%00", "limit=null",
        "limit=99999999999999999999999999", "offset=-1", "offset=2147483648", "offset=1e400",
        "before=0", "before=-5", "before=9223372036854775808", "before=null", "status=done",
        "status=", "topic=", "topic=a.b", "topic=%00", "key=%00", "key=", f"key={'x' * 256}",
        "limit=5&limit=5", "topic=a&topic=b", "limits=5", "Limit=5", "=5", "&", "limit",
        "topic=%ff", "topic=%", "%ff=1", "text=%ed%a0%80", "&".join(f"a{n}=1" for n in range(101)),
    ],
)  # fmt: skip
def test_a_query_that_is_wrong_is_refused(web, query):
    said = web.get(f"/api/jobs?{query}", as_=web.root)

    assert refused(said)[0] == 400
    assert refused(said)[1] in {"invalid", "invalid_topic", "topic_required"}


@pytest.mark.parametrize("query", [b"topic=\xff", b"\x00", b"limit=\xd9\xa5"])
def test_a_query_that_is_not_ascii_is_refused(web, query):
    assert raw(web, "GET", "/api/jobs", query) == (400, "invalid")


CLOSED = [route for route in ROUTES if not route.is_open]


@pytest.mark.parametrize("route", CLOSED, ids=lambda route: f"{route.method} {route.path}")
def test_no_route_takes_unknown_parameters(web, route):
    said = web(route.method, f"{filled(route.path)}?nobodyKnows=1", {}, as_=web.root)

    assert said.status_code == 400
    assert refused(said)[1] == "invalid"


def test_the_largest_offset_is_far_but_not_wrong(web):
    said = web.get("/api/jobs?offset=2147483647&limit=1000", as_=web.root)

    assert (said.json()["items"], said.json()["next"]) == ([], None)


@pytest.mark.parametrize(
    "query", ["minutes=0", "minutes=576001", "minutes=1.5", "topic=", "topic=%00"]
)
def test_a_span_of_throughput_is_checked(web, query):
    assert refused(web.get(f"/api/jobs/throughput?{query}", as_=web.root))[0] == 400


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize(
    "token", [b"\xff\xfe", b"Bearer", b"Bearer ", b"Bearer \xff", b"Basic YTpi", b"tow_",
              b"Bearer a.b.c", b"Bearer " + b"x" * 60_000, b"\x01", b"a.b.c.d.e", b"Bearer  "],
)  # fmt: skip
def test_a_token_that_is_none_is_refused(web, token):
    said = web.get("/api/jobs", headers={b"authorization": token})

    assert refused(said) == (401, "invalid_token")


@pytest.mark.parametrize(
    "cookie", [b"towpath_auth", b"towpath_auth=\xff", b"towpath_auth=;;;", b'towpath_auth="\\400"',
               b"towpath_auth=a.b.c", b"\xff\xff; towpath_auth=x"],
)  # fmt: skip
def test_a_cookie_that_is_none_is_nobodys(web, cookie):
    said = web.get("/api/jobs", headers={b"cookie": cookie})

    assert refused(said) == (401, "login_required")


# ---------------------------------------------------------------- anything at all


hostile = settings(max_examples=many(60), suppress_health_check=list(HealthCheck), database=None)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
TAKING = [route for route in ROUTES if route.takes and not route.is_open]
names = st.sampled_from(
    ["topic", "payload", "limit", "epoch", "jobs", "name", "scopes", "topics", "email", "password",
     "enqueue_rule", "cron", "every", "priority", "key", "headers", "after", "delay", "runAt",
     "said", "progress", "message", "lines", "events"]
)  # fmt: skip


@hostile
@given(route=st.sampled_from(TAKING), body=st.binary(max_size=300))
def test_no_bytes_are_our_fault(any_web, route, body):
    said = send(any_web, body, filled(route.path), route.method)

    assert said.status_code < 500, said.text


@hostile
@given(route=st.sampled_from(TAKING), body=st.dictionaries(names, json_values, max_size=6))
def test_no_json_is_our_fault(any_web, route, body):
    text = json.dumps(body)  # with NaN, surrogates and all
    said = send(any_web, text.encode(), filled(route.path), route.method)

    assert said.status_code < 500, said.text


@hostile
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]),
    path=st.text(st.characters(codec="utf-8"), max_size=50).map(lambda text: f"/{text}")
    | st.sampled_from(ROUTES).flatmap(
        lambda route: st.text(st.characters(codec="utf-8"), max_size=20).map(
            lambda text: route.path.replace("{", "").replace("}", text)
        )
    ),
    query=st.binary(max_size=30),
)
def test_no_path_is_our_fault(any_web, method, path, query):
    status, _ = raw(any_web, method, path.replace("%", "%25"), query)

    assert status < 500
