"""The tester of rules: which rule decides, and which of its parts hold."""

import json
import re

import pytest

from tests.behaviour.test_rules import code, table
from tests.server.conftest import PASSWORD, refused, token_of
from towpath.model.states import State

PATH = "/api/access/try"


def tried(web, root, **asked):
    answer = web.post(PATH, asked, as_=root)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def page_job(web):
    """The job of docs/rules.md."""
    payload = {"userId": "ann", "to": [{"id": "bob"}, {"id": "carol"}], "apiToken": "hush"}
    job = web.app.jobs.enqueue("mail", payload, priority=10)
    [lease] = web.app.jobs.reserve("mail")
    web.app.jobs.bury(lease)
    assert web.app.jobs.get(job).state is State.BURIED
    return job


CALLERS = {
    "anonymous": {"as": None, "query": {"page": "12"}},
    "ann": {
        "as": {"auth": {"id": "ann", "email": "ann@example.com", "roles": ["editor", "admin"],
                        "verified": True}},
        "body": {"tags": ["a", "b"]},
    },
    "bob": {
        "as": {"auth": {"id": "bob", "email": "Bob@Elsewhere.org", "roles": []}},
        "body": {"tags": ["a"], "priority": 5, "role": None},
    },
}  # fmt: skip


@pytest.mark.one_database
def test_the_examples_of_the_page_get_the_documented_answer(web, root, page_job):
    """P9"""
    rows = [row for row in table("Examples") if len(row) == 3 and row[0] != "rule"]
    assert len(rows) > 20
    for rule, who, verdict in rows:
        text = code(rule)
        asked = {"verb": "manage", "job": str(page_job.id), "rules": {"manage_rule": text}}
        said = tried(web, root, **asked, **CALLERS[who])

        assert said["allowed"] == (verdict == "yes"), (rule, who, said)
        assert said["rule"] == {"name": "manage_rule", "of": "general", "text": text}
        for part in said["parts"]:
            assert text[part["position"] :].startswith(part["text"])
        written = [part["text"] for part in said["parts"]]
        assert re.sub(r"[\s()]|&&|\|\|", "", text) == re.sub(r"[\s()]", "", "".join(written))
        if text and not said["allowed"]:
            failed = next(part["text"] for part in said["parts"] if not part["holds"])
            assert said["why"].endswith(f"{failed} does not hold")


@pytest.mark.one_database
def test_the_examples_of_channels_get_the_documented_answer(web, root, page_job):
    """P9"""
    rows = [row for row in table("Channels") if len(row) == 5 and row[0] != "channels"]
    assert len(rows) > 8
    for prefix, rule, channel, who, verdict in rows:
        name = code(channel).replace("job:1", f"job:{page_job.id}")
        asked = {"verb": "subscribe", "channel": name, "as": CALLERS[who]["as"]}
        rules = {"channels": {code(prefix): {"subscribe_rule": code(rule)}}}

        said = tried(web, root, **asked, rules=rules)

        assert said["allowed"] == (verdict == "yes"), (prefix, rule, name, who, said)


def test_the_parts_of_a_rule_have_their_values(web, root, page_job):
    text = "@job.payload.userId = @request.auth.id  &&\n (@request.auth.verified = true || false)"
    asked = {"verb": "manage", "job": str(page_job.id), "as": {"auth": {"id": "ann"}}}

    said = tried(web, root, **asked, rules={"topics": {"mail": {"manage_rule": text}}})

    assert said == {
        "allowed": False,
        "why": "the manage_rule of this topic does not allow it: "
        "@request.auth.verified = true does not hold",
        "rule": {"name": "manage_rule", "of": "topic", "text": text},
        "parts": [
            {
                "text": "@job.payload.userId = @request.auth.id", "position": 0,
                "left": '"ann"', "operator": "=", "right": '"ann"', "holds": True,
            },
            {
                "text": "@request.auth.verified = true", "position": text.index("@request.auth.v"),
                "left": "missing", "operator": "=", "right": "true", "holds": False,
            },
            {
                "text": "false", "position": text.index("false"),
                "left": "false", "operator": "", "right": "", "holds": False,
            },
        ],
    }  # fmt: skip


def test_the_stored_rules_are_tried_and_stay_as_they_are(web, root, ada):
    web.app.access.set(manage_rule="@request.auth.role = 'editor'")
    before = web.app.access.get()
    [account] = web.app.accounts.list("users")
    asked = {"verb": "manage", "topic": "mail", "as": {"collection": "users", "id": account.id}}

    assert tried(web, root, **asked)["allowed"]
    assert not tried(web, root, **asked, rules={"manage_rule": ""})["allowed"]
    assert tried(web, root, **asked, rules={"http_enabled": False})["why"].startswith("the API is")
    assert web.app.access.get() == before


@pytest.mark.parametrize(
    ("rule", "verb"),
    [
        ("@request.auth.role = 'editor'", "manage"),
        ("@job.topic = 'mail'", "manage"),
        ("@request.auth.role = 'guest'", "work"),
        ("@request.body.payload.to = 'ann'", "enqueue"),
        ("@job.payload.to != 'ann'", "enqueue"),
        ("", "enqueue"),
        ("true", "work"),
    ],
)
def test_the_tester_says_what_the_api_does(web, root, ada, rule, verb):
    web.app.access.set(**{f"{verb}_rule": rule})
    [account] = web.app.accounts.list("users")
    new = {"topic": "mail", "payload": {"to": "ann"}}
    real = {
        "enqueue": lambda: web.post("/api/jobs/enqueue", new, as_=ada),
        "manage": lambda: web.post("/api/topics/mail/pause", {"create": True}, as_=ada),
        "work": lambda: web.post("/api/jobs/reserve", {"topics": ["mail"]}, as_=ada),
    }[verb]()

    said = tried(
        web, root, verb=verb, topic="mail", body=new if verb == "enqueue" else None,
        **{"as": {"collection": "users", "id": account.id}},
    )  # fmt: skip

    assert said["allowed"] == (real.status_code < 300), (said, real.text)


def test_a_rule_that_needs_a_job_allows_no_topic(web, root):
    rules = {"manage_rule": "@job.payload.userId = @request.auth.id"}

    said = tried(web, root, verb="manage", topic="mail", rules=rules)

    assert not said["allowed"]
    assert "reads @job.payload" in said["why"]


def test_keys_and_superusers_have_no_rule(web, root):
    key, _ = web.app.keys.create("ci", scopes=["enqueue"], topics=["mail"])
    [account] = web.app.accounts.list("_superusers")

    def said(verb, topic, **caller):
        answer = tried(web, root, verb=verb, topic=topic, **{"as": caller})
        assert (answer["rule"], answer["parts"]) == (None, [])
        return answer["allowed"]

    assert said("enqueue", "mail", key=key.id)
    assert not said("enqueue", "post", key=key.id)
    assert not said("manage", "mail", key=key.id)
    assert said("work", "any", collection="_superusers", id=account.id)


def test_hidden_values_stay_hidden(web, root, page_job):
    text = "@job.payload.apiToken = 'x' || @job.payload.to.id ?= 'bob'"
    asked = {"verb": "manage", "job": str(page_job.id), "as": {"auth": {"id": "ann"}}}

    answer = web.post(PATH, {**asked, "rules": {"manage_rule": text}}, as_=root)

    assert "hush" not in answer.text
    assert json.loads(answer.text)["parts"][1]["left"] == '["bob","carol"]'


def test_a_rule_that_cannot_be_read_is_refused_with_its_position(web, root):
    rules = {"manage_rule": "@job.topic = "}

    said = web.post(PATH, {"verb": "manage", "rules": rules}, as_=root)

    assert refused(said) == (400, "invalid_rule")
    assert said.json()["details"]["position"] == len("@job.topic = ")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"verb": "manage", "as": {"key": "none"}}, "not_found"),
        ({"verb": "manage", "as": {"collection": "users", "id": "none"}}, "not_found"),
        ({"verb": "manage", "job": "0199c1de-0000-7000-8000-000000000000"}, "not_found"),
        ({"verb": "manage", "as": {}}, "invalid"),
        ({"verb": "manage", "as": {"key": "a", "id": "b"}}, "invalid"),
        ({"verb": "publish", "topic": "mail"}, "invalid"),
        ({"verb": "enqueue", "channel": "chat"}, "invalid"),
        ({"verb": "read"}, "invalid"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(web, root, asked, code):
    assert refused(web.post(PATH, asked, as_=root))[1] == code


def test_only_superusers_try_rules(web, ada):
    web.app.accounts.create("users", "eve@example.org", PASSWORD)

    assert refused(web.post(PATH, {"verb": "manage"}, as_=ada)) == (403, "forbidden")


RULES = {
    "closed": {},
    "open": {
        **dict.fromkeys(("enqueue_rule", "manage_rule", "work_rule"), "true"),
        "channels": {"": {f"{verb}_rule": "true" for verb in ("publish", "subscribe", "manage")}},
    },
    "off": {"http_enabled": False, "manage_rule": "true"},
    "few topics": {"allowed_topics": ["post"], "enqueue_rule": "@job.payload.to != 'bob'"},
    "of jobs": {
        "manage_rule": "@job.payload.to = @request.auth.id",
        "work_rule": "@job.topic = 'mail'",
        "enqueue_rule": "@request.auth.id != ''",
        "topics": {"post": {"manage_rule": "true", "work_rule": ""}},
        "channels": {
            "chat": {
                "publish_rule": "@channel.rest = @request.auth.id",
                "subscribe_rule": "@request.auth.id = ''",
                "manage_rule": "@request.auth.id != ''",
            },
            "job:": {
                "subscribe_rule": "@job.payload.to != 'bob'",
                "manage_rule": "@job.payload.to != 'bob'",
            },
        },
    },
}
KEYS = [
    {"scopes": ["enqueue", "manage", "work", "publish", "subscribe"]},
    {"scopes": ["manage"]},
    {"scopes": ["manage", "work"], "topics": ["post"]},
    {"scopes": ["enqueue"], "topics": ["mail", "webhooks-replay"]},
    {"scopes": ["publish", "subscribe", "manage"], "channels": ["chat"]},
    {"scopes": ["subscribe"], "channels": ["job:", "system"]},
]


@pytest.mark.one_database
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_the_tester_agrees_with_the_api_about_every_caller(quick_web, rules):
    web, app = quick_web, quick_web.app
    root = token_of(app, "_superusers", "root@example.org")
    ada = token_of(app, "users", "ada@example.org")
    [[user], [superuser]] = app.accounts.list("users"), app.accounts.list("_superusers")
    callers = [
        (None, None),
        (ada, {"collection": "users", "id": user.id}),
        (root, {"collection": "_superusers", "id": superuser.id}),
    ]
    for options in KEYS:
        key, secret = app.keys.create("key", **options)
        callers.append((secret, {"key": key.id}))
    jobs = [app.jobs.enqueue(topic, {"to": "ann"}).id for topic in ("mail", "post")]
    app.events.publish("chat", 1)
    app.access.set(**rules)

    asked = []
    for topic in ("mail", "post", "webhooks-replay"):
        for to in ("ann", "bob"):
            new = {"topic": topic, "payload": {"to": to}}
            enqueue = ("POST", "/api/jobs/enqueue", new)
            asked.append(({"verb": "enqueue", "topic": topic, "body": new}, enqueue))
        pause = ("POST", f"/api/topics/{topic}/pause", {"create": True})
        asked.append(({"verb": "manage", "topic": topic}, pause))
        reserve = ("POST", "/api/jobs/reserve", {"topics": [topic]})
        asked.append(({"verb": "work", "topic": topic}, reserve))
    for job in map(str, jobs):
        asked.append(({"verb": "manage", "job": job}, ("GET", f"/api/jobs/{job}", None)))
        touch = ("POST", f"/api/jobs/{job}/touch", {"epoch": 99})
        asked.append(({"verb": "work", "job": job}, touch))
    for channel in ("chat", f"chat{user.id}", "system", *map("job:{}".format, jobs)):
        path = f"/api/channels/{channel}"
        publish = ("POST", f"{path}/events", {"events": [{"payload": 1}]})
        asked.append(({"verb": "publish", "channel": channel}, publish))
        read = ("GET", f"{path}/events", None)
        asked.append(({"verb": "subscribe", "channel": channel}, read))
        consumers = ("GET", f"{path}/consumers", None)
        asked.append(({"verb": "manage", "channel": channel}, consumers))

    differ = []
    for secret, caller in callers:
        for question, (method, path, body) in asked:
            real = web(method, path, body, as_=secret)
            said = web.post(PATH, {**question, "as": caller}, as_=root).json()
            # A stale lease is 409; a channel that belongs to Towpath is refused by both.
            if said.get("allowed", False) != (real.status_code in {200, 201, 204, 409}):
                differ.append((caller, question, said, real.text))
    assert differ == []
