"""Channels over HTTP: what is published, read and waited for, and by which callers."""

import contextlib
import threading

import pytest

from tests.conftest import eventually
from tests.server.conftest import refused
from towpath.errors import Invalid, InvalidRule, InvalidToken
from towpath.server import channels


def publish(web, name, *payloads, as_, **more):
    body = {"events": [{"payload": payload, **more} for payload in payloads]}
    return web.post(f"/api/channels/{name}/events", body, as_=as_)


def test_events_are_published_and_read(web, root):
    """EV-4"""
    said = publish(web, "chat:42", 1, {"a": [2]}, as_=root, type="said", headers={"turn": "1"})
    page = web.get("/api/channels/chat:42/events", as_=root).json()

    assert said.status_code == 201
    assert said.json()["items"] == page["events"]
    assert [event["payload"] for event in page["events"]] == [1, {"a": [2]}]
    assert {event["type"] for event in page["events"]} == {"said"}
    assert page["cursor"] == page["head"] == page["events"][-1]["cursor"]
    assert page["ended"] is None


def test_a_reader_goes_on_page_by_page(web, root):
    publish(web, "chat", *range(5), as_=root)
    path, after, seen = "/api/channels/chat/events", "", []
    for _ in range(3):
        page = web.get(path, as_=root, params={"after": after, "limit": 2}).json()
        seen += [event["payload"] for event in page["events"]]
        after = page["cursor"]

    assert seen == [0, 1, 2, 3, 4]


@contextlib.contextmanager
def waiting(web, as_):
    """Read while the block runs; the answer is there behind it."""
    answers = []

    def wait():
        answers.append(web.get("/api/channels/chat/events", as_=as_, params={"wait": 30}))

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: any(hub._watched for hub in web.app.events._hubs._hubs.values()))
    yield answers
    thread.join()


def test_a_read_waits_for_the_next_event(live_web, loop):
    root = live_web.app.keys.create("all", scopes=["publish", "subscribe"])[1]
    with waiting(live_web, as_=root) as answers:
        publish(live_web, "chat", 2, as_=root)

    assert [event["payload"] for event in answers[0].json()["events"]] == [2]


def test_a_key_that_is_revoked_while_a_read_waits_gets_no_event(live_web, loop):
    root = live_web.app.keys.create("all", scopes=["publish", "subscribe"])[1]
    revocable, secret = live_web.app.keys.create("r", scopes=["subscribe"])
    with waiting(live_web, as_=secret) as answers:
        live_web.app.keys.revoke(revocable.id)
        publish(live_web, "chat", 1, as_=root)

    assert refused(answers[0]) == (401, "invalid_token")


def test_a_channel_is_shown_closed_and_deleted(web, root):
    publish(web, "chat", 1, as_=root)
    assert web.post("/api/channels/chat/close", as_=root).status_code == 204
    shown = web.get("/api/channels/chat", as_=root).json()

    assert (shown["events"], shown["size"], shown["ended"]) == (1, 1, "closed")
    assert refused(publish(web, "chat", 2, as_=root)) == (409, "channel_closed")
    assert web.delete("/api/channels/chat", as_=root).status_code == 204
    assert refused(web.delete("/api/channels/chat", as_=root)) == (404, "not_found")
    assert refused(web.get("/api/channels/chat", as_=root)) == (404, "not_found")


def test_a_cursor_that_cannot_go_on_is_reset_with_the_reason(web, root):
    said = publish(web, "chat", 1, as_=root).json()["items"][0]
    web.delete("/api/channels/chat", as_=root)
    publish(web, "chat", 2, as_=root)

    answer = web.get("/api/channels/chat/events", as_=root, params={"after": said["cursor"]})

    assert refused(answer) == (410, "cursor_reset")
    assert answer.json()["details"]["reason"] == "channel"
    again = web.get(
        "/api/channels/chat/events", as_=root, params={"after": answer.json()["details"]["oldest"]}
    )
    assert [event["payload"] for event in again.json()["events"]] == [2]


def test_wrong_input_is_refused(web, root):
    assert refused(publish(web, "a b", 1, as_=root)) == (400, "invalid_channel")
    assert refused(publish(web, "system", 1, as_=root)) == (400, "invalid_channel")
    assert refused(publish(web, "chat", 1, as_=root, type="a b")) == (400, "invalid")
    answer = web.get("/api/channels/chat/events", as_=root, params={"after": "soon"})
    assert refused(answer) == (400, "invalid_cursor")
    answer = web.get("/api/channels/chat/events", as_=root, params={"from": "now"})
    assert answer.status_code == 400
    assert web.post("/api/channels/chat/events", {"events": []}, as_=root).status_code == 400


# ---------------------------------------------------------------- callers


def test_without_rules_channels_are_for_superusers(web, root, ada):
    publish(web, "chat", 1, as_=root)

    for answer in (
        publish(web, "chat", 1, as_=ada),
        web.get("/api/channels/chat/events", as_=ada),
        web.get("/api/channels/chat", as_=ada),
        web.get("/api/channels", as_=ada),
        web.delete("/api/channels/chat", as_=ada),
        web.post("/api/channels/chat/close", as_=ada),
    ):
        assert refused(answer) == (403, "forbidden")
    assert refused(web.get("/api/channels/chat/events")) == (401, "login_required")


def test_a_rule_of_a_prefix_decides(web, root, ada, bob):
    web.app.access.set(
        channels={
            "user:": {"subscribe_rule": "@channel.rest = @request.auth.id"},
            "": {"publish_rule": "@request.auth.role = 'editor'", "subscribe_rule": "true"},
            "secret:": {"subscribe_rule": ""},
        }
    )
    id = web.get("/api/collections/users/records", as_=root).json()["items"][0]["id"]
    for name in (f"user:{id}", "news", "secret:1"):
        assert publish(web, name, 1, as_=ada).status_code == 201
        assert refused(publish(web, name, 1, as_=bob)) == (403, "forbidden")

    def reads(name, as_):
        return web.get(f"/api/channels/{name}/events", as_=as_).status_code

    assert [reads(f"user:{id}", as_) for as_ in (ada, bob)] == [200, 403]
    assert [reads("news", as_) for as_ in (ada, bob, None)] == [200, 200, 200]
    assert [reads("secret:1", as_) for as_ in (ada, root)] == [403, 200]


def test_system_is_open_only_to_rules_and_keys_that_name_it(web, root, ada):
    """MS-10: a rule or a key for all channels does not mean what happens to all jobs."""
    web.app.jobs.enqueue("mail", expires_after=0.001)
    web.app.topics.pause("mail")
    path, all_channels = "/api/channels/system/events", {"subscribe_rule": "true"}
    keys = [
        web.app.keys.create(name, scopes=["subscribe"], channels=channels)[1]
        for name, channels in (("all", []), ("part", ["sys"]), ("system", ["system"]))
    ]
    web.app.access.set(channels={"": all_channels, "sys": all_channels})
    assert [web.get(path, as_=key).status_code for key in keys] == [403, 403, 200]
    assert [web.get(path, as_=as_).status_code for as_ in (ada, None, root)] == [403, 401, 200]

    web.app.access.set(channels={"system": {"subscribe_rule": "@request.auth.role = 'editor'"}})

    [event] = web.get(path, as_=ada).json()["events"]
    assert (event["type"], event["payload"]) == ("topic.paused", {"topic": "mail"})
    assert web.get(path).status_code == 401
    assert refused(web.delete("/api/channels/system", as_=root)) == (400, "invalid_channel")


def test_a_rule_that_changes_holds_at_once(web, ada):
    web.app.access.set(channels={"chat": {"subscribe_rule": "true"}})
    assert web.get("/api/channels/chat/events", as_=ada).status_code == 200
    web.app.access.set(channels={"chat": None})

    assert web.get("/api/channels/chat/events", as_=ada).status_code == 403


def test_a_key_is_bound_to_scopes_and_prefixes(web, revoked):
    secret = web.app.keys.create("a", scopes=["publish"], channels=["chat:", "news"])[1]
    reader = web.app.keys.create("b", scopes=["subscribe"])[1]

    assert publish(web, "chat:1", 1, as_=secret).status_code == 201
    assert publish(web, "news", 1, as_=secret).status_code == 201
    assert refused(publish(web, "other", 1, as_=secret)) == (403, "forbidden")
    assert web.get("/api/channels/chat:1/events", as_=secret).status_code == 403
    assert web.get("/api/channels/chat:1/events", as_=reader).status_code == 200
    assert web.delete("/api/channels/chat:1", as_=reader).status_code == 403
    assert web.get("/api/channels/chat:1/events", as_=revoked).status_code == 401


def test_a_list_shows_what_the_caller_may_manage(web, root, ada):
    web.app.access.set(channels={"mine:": {"manage_rule": "true"}})
    for name in ("mine:1", "mine:2", "other"):
        publish(web, name, 1, as_=root)

    names = [each["name"] for each in web.get("/api/channels", as_=ada).json()["items"]]
    assert names == ["mine:1", "mine:2"]
    assert len(web.get("/api/channels", as_=root).json()["items"]) == 3


def test_a_list_goes_on_behind_channels_that_the_caller_may_not_see(web, ada, monkeypatch):
    """Pages of any size show the same channels, also if a page reads hidden ones only."""
    rules = {"manage_rule": "true"}
    web.app.access.set(channels={"a": rules, "c": rules})
    for name in ("a1", "a2", *(f"b00{n}" for n in range(5)), "c1"):
        web.app.events.publish(name, 1)

    def pages(limit):
        path, found = f"/api/channels?limit={limit}", []
        page = web.get(path, as_=ada).json()
        found.append([each["name"] for each in page["items"]])
        while page["next"] is not None:
            page = web.get(f"{path}&after={page['next']}", as_=ada).json()
            found.append([each["name"] for each in page["items"]])
        return found

    def names(limit):
        return [name for page in pages(limit) for name in page]

    assert pages(2) == [["a1", "a2"], ["c1"]]
    monkeypatch.setattr(channels, "AT_ONCE", 2)
    assert [names(limit) for limit in (1, 2, 3, 100)] == [["a1", "a2", "c1"]] * 4
    monkeypatch.setattr(channels, "MOST_READ", 2)
    assert [names(limit) for limit in (1, 2, 3, 100)] == [["a1", "a2", "c1"]] * 4
    assert [] in pages(3)


def test_a_deleted_channel_with_forks_is_gone_and_not_listed(web, root):
    publish(web, "chat", 1, as_=root)
    fork = {"stream-forked-from": "/v1/stream/chat"}
    assert web.put("/v1/stream/mine", as_=root, headers=fork).status_code == 201
    assert web.delete("/api/channels/chat", as_=root).status_code == 204

    listed = [each["name"] for each in web.get("/api/channels", as_=root).json()["items"]]
    assert listed == ["mine"] == [each.name for each in web.app.events.list()]
    assert refused(web.get("/api/channels/chat", as_=root)) == (410, "channel_gone")
    assert refused(web.get("/api/channels/chat/events", as_=root)) == (410, "channel_gone")
    assert refused(web.get("/api/channels/none", as_=root)) == (404, "not_found")


def test_the_stream_of_a_job_is_for_its_managers_and_for_whom_its_rule_allows(web, root, ada, bob):
    id = web.get("/api/collections/users/records", as_=root).json()["items"][0]["id"]
    job = web.app.jobs.enqueue("ask", {"userId": id})
    path = f"/api/channels/job:{job.id}/events"
    assert web.get(path, as_=ada).status_code == 403
    web.app.access.set(
        channels={"job:": {"subscribe_rule": "@job.payload.userId = @request.auth.id"}}
    )

    assert [web.get(path, as_=as_).status_code for as_ in (ada, bob, root)] == [200, 403, 200]
    web.app.access.set(channels={"job:": None}, manage_rule="@request.auth.email ~ 'bob'")
    assert [web.get(path, as_=as_).status_code for as_ in (ada, bob)] == [403, 200]
    assert web.get("/api/channels/job:none/events", as_=ada).status_code == 403


def test_rules_of_channels_are_checked_when_they_are_set(web, root):
    access = web.app.access
    with pytest.raises(
        InvalidRule, match=r"unknown field @channel.topic; known fields: name, rest"
    ):
        access.set(channels={"": {"publish_rule": "@channel.topic = 'a'"}})
    with pytest.raises(InvalidRule, match="only the rules of channels may use @channel"):
        access.set(manage_rule="@channel.name = 'a'")
    with pytest.raises(InvalidRule, match="begin with job: may use @job"):
        access.set(channels={"chat": {"publish_rule": "@job.topic = 'a'"}})
    with pytest.raises(Invalid, match=r"unknown rules of channels 'chat': work_rule; known rules"):
        access.set(channels={"chat": {"work_rule": "true"}})
    with pytest.raises(Invalid, match="not a valid channel"):
        access.set(channels={"a b": {}})
    body = {"channels": {"chat:": {"subscribe_rule": "true"}}}
    assert web.patch("/api/access", body, as_=root).json()["channels"] == {
        "chat:": {"publish_rule": None, "subscribe_rule": "true", "manage_rule": None}
    }


# ---------------------------------------------------------------- passes


def test_a_pass_is_spent_once(web, ada, clock):
    web.app.access.set(channels={"chat": {"subscribe_rule": "@request.auth.id != ''"}})
    made = web.post("/api/passes", {"channels": ["chat"]}, as_=ada).json()

    redeemed = web.app.accounts.redeem_pass(made["pass"])

    assert (redeemed.token, redeemed.channels, made["expiresIn"]) == (ada, ("chat",), 60)
    with pytest.raises(InvalidToken, match="used already"):
        web.app.accounts.redeem_pass(made["pass"])


def test_a_pass_lives_for_a_minute(web, ada, clock):
    web.app.access.set(channels={"chat": {"subscribe_rule": "true"}})
    made = web.post("/api/passes", {"channels": ["chat"]}, as_=ada).json()
    clock.advance(61)

    with pytest.raises(InvalidToken):
        web.app.accounts.redeem_pass(made["pass"])
    web.app.upkeep.run()  # and nothing is left of it


@pytest.mark.parametrize("text", ["", "x", "ä", "A" * 100, "A" * 20_000])
def test_text_that_is_no_pass_is_refused(web, root, text):
    web.app.accounts.issue_pass(root, ["chat"])  # there is a secret
    with pytest.raises(InvalidToken):
        web.app.accounts.redeem_pass(text)


def test_a_pass_shows_nothing_of_its_caller(web, root):
    made = web.app.accounts.issue_pass(root, ["chat"])
    assert root not in made
    assert made != web.app.accounts.issue_pass(root, ["chat"])


def test_a_pass_is_only_for_channels_that_the_caller_may_read(web, ada):
    answer = web.post("/api/passes", {"channels": ["chat"]}, as_=ada)
    assert refused(answer) == (403, "forbidden")
    assert web.post("/api/passes", {"channels": []}, as_=ada).status_code == 400
    web.app.access.set(channels={"chat": {"subscribe_rule": "true"}})
    assert refused(web.post("/api/passes", {"channels": ["chat"]})) == (401, "login_required")
