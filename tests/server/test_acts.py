"""What people do over HTTP is on record, in channel `system`."""

import logging

import pytest

from tests.server.conftest import PASSWORD, Web
from towpath import App
from towpath.errors import DatabaseUnavailable


def acts(web):
    """The acts on record, oldest first, without what all of them say."""
    page = web.app.events.read("system", types=["act.*"])
    return [(event.type.removeprefix("act."), event.payload) for event in page.events]


def kinds(web):
    return [what for what, _ in acts(web)]


def buried(web, topic="mail"):
    job = web.app.jobs.enqueue(topic)
    [lease] = web.app.jobs.reserve(topic)
    web.app.jobs.bury(lease)
    return job


def test_an_act_says_who_did_what_and_from_where(web, root):
    job = buried(web)

    assert web.post(f"/api/jobs/{job.id}/requeue", as_=root).status_code == 200

    [(what, said)] = acts(web)
    who = said.pop("who")
    assert (who["collection"], who["name"]) == ("_superusers", "root@example.org")
    assert what == "job.requeued"
    assert said == {"job": str(job.id), "topic": "mail", "count": 1, "from": "127.0.0.1"}


@pytest.mark.parametrize("lifecycle", ["none", "failures", "all"])
def test_acts_are_on_record_whatever_the_setting_says(
    make_app, clock, loop, quick_passwords, lifecycle
):
    web = Web(make_app(clock=clock, lifecycle=lifecycle), loop)
    account = web.app.accounts.create("_superusers", "root@example.org", PASSWORD, name="Ada")
    token = web.app.accounts.token(account)

    assert web.post("/api/topics/mail/pause", {"create": True}, as_=token).status_code == 204

    [(what, said)] = acts(web)
    assert (what, said["who"]["name"]) == ("topic.paused", "Ada")
    web.close()


def test_each_act_on_jobs_and_topics_is_on_record(web, root):
    job, other = buried(web), buried(web)
    path = f"/api/jobs/{job.id}"
    new = {"topic": "mail", "payload": {"secret": "hush"}}

    assert web.post("/api/jobs/enqueue", new, as_=root).status_code == 201
    assert web.post("/api/jobs/enqueue-many", {"jobs": [new, new]}, as_=root).status_code == 201
    assert web.post(f"{path}/kick", as_=root).status_code == 200
    assert web.patch(path, {"priority": 1}, as_=root).status_code == 200
    assert web.post(f"{path}/cancel", as_=root).status_code == 200
    assert web.delete(path, as_=root).status_code == 204
    assert web.post("/api/topics/mail/pause", {"duration": 60}, as_=root).status_code == 204
    assert web.post("/api/topics/mail/resume", as_=root).status_code == 204
    assert web.post("/api/topics/mail/kick", {"limit": 5}, as_=root).json() == {"kicked": 1}
    assert web.post("/api/topics/mail/purge", as_=root).json() == {"purged": 4}

    found = acts(web)
    assert [what for what, _ in found] == [
        "job.enqueued", "job.enqueued", "job.kicked", "job.changed", "job.cancelled", "job.deleted",
        "topic.paused", "topic.resumed", "topic.kicked", "topic.purged",
    ]  # fmt: skip
    assert [said["count"] for _, said in found] == [1, 2, 1, 1, 1, 1, 1, 1, 1, 4]
    assert "hush" not in str(found)
    assert str(other.id) not in str(found)


def test_each_act_on_schedules_is_on_record(web, root):
    path = "/api/schedules/digest"

    web.put(path, {"topic": "mail", "every": 60, "payload": "hush"}, as_=root)
    web.post(f"{path}/pause", as_=root)
    web.post(f"{path}/resume", as_=root)
    web.post(f"{path}/run", as_=root)
    web.delete(path, as_=root)

    assert kinds(web) == [
        f"schedule.{each}" for each in ("set", "paused", "resumed", "run", "deleted")
    ]
    assert "hush" not in str(acts(web))


def test_each_act_on_accounts_keys_and_rules_is_on_record_without_secrets(web, root):
    ada = {"email": "ada@example.org", "password": "correct horse battery"}

    id = web.post("/api/collections/users/records", ada, as_=root).json()["id"]
    change = {"password": "another long one", "color": "teal"}
    web.patch(f"/api/collections/users/records/{id}", change, as_=root)
    web.delete(f"/api/collections/users/records/{id}", as_=root)
    key = web.post("/api/keys", {"name": "ci", "scopes": ["work"]}, as_=root).json()
    web.delete(f"/api/keys/{key['id']}", as_=root)
    web.patch("/api/access", {"work_rule": "@request.headers.x_key = 'hush'"}, as_=root)

    found = acts(web)
    assert [what for what, _ in found] == [
        "account.created", "account.changed", "account.deleted", "key.created", "key.revoked",
        "access.changed",
    ]  # fmt: skip
    assert [said.get("changed") for _, said in found if "changed" in said] == [
        ["password"],
        ["work_rule"],
    ]
    for secret in ("hush", "another long one", "correct horse battery", key["secret"]):
        assert secret not in str(found)


def test_each_act_on_webhooks_is_on_record_without_its_url(web, root):
    new = {"channel": "orders", "url": "https://example.org/hook?token=hush"}

    id = web.post("/api/webhooks", new, as_=root).json()["id"]
    path = f"/api/webhooks/{id}"
    web.patch(path, {"description": "shop"}, as_=root)
    for verb in ("pause", "resume", "rotate", "ping", "replay"):
        assert web.post(f"{path}/{verb}", {} if verb in {"rotate", "replay"} else None, as_=root)
    web.delete(path, as_=root)

    done = "created changed paused resumed rotated pinged replayed deleted"
    assert kinds(web) == [f"webhook.{each}" for each in done.split()]
    assert "hush" not in str(acts(web))


def test_each_act_on_channels_and_their_consumers_is_on_record(web, root, ada):
    """What a user does with a consumer of its own is reading."""
    web.app.access.set(channels={"chat": {"subscribe_rule": "@request.auth.id != ''"}})
    web.app.events.publish("chat:1", "hush")
    consumers = "/api/channels/chat:1/consumers"
    for name, token in (("mailer", root), ("mine", ada)):
        assert web.put(f"{consumers}/{name}", as_=token).status_code == 200
        moved = web.post(f"{consumers}/{name}/move", {"from": "now"}, as_=token)
        assert moved.status_code == 200, moved.text
        assert web.delete(f"{consumers}/{name}", as_=token).status_code == 204
    assert web.put("/api/channels/chat:1/limits", {"maxCount": 9}, as_=root).status_code == 204
    assert web.delete("/api/channels/chat:1", as_=root).status_code == 204

    found = acts(web)
    assert [what for what, _ in found] == [
        "consumer.moved", "consumer.forgotten", "channel.limited", "channel.deleted",
    ]  # fmt: skip
    assert {said["channel"] for _, said in found} == {"chat:1"}
    assert [said.get("consumer") for _, said in found] == ["mailer", "mailer", None, None]
    assert "hush" not in str(found)


def test_what_a_key_does_is_no_act(web):
    key = web.app.keys.create("ci", scopes=["enqueue", "manage"])[1]
    job = buried(web)

    assert web.post("/api/jobs/enqueue", {"topic": "mail"}, as_=key).status_code == 201
    assert web.post(f"/api/jobs/{job.id}/requeue", as_=key).status_code == 200

    assert acts(web) == []


def test_what_a_user_enqueues_is_no_act_but_a_change_is(web, root, ada):
    web.app.access.set(access_rule="@request.auth.id != ''")
    job = web.post("/api/jobs/enqueue", {"topic": "mail"}, as_=ada).json()

    assert web.post(f"/api/jobs/{job['id']}/cancel", as_=ada).status_code == 200

    [(what, said)] = acts(web)
    assert (what, said["who"]["collection"]) == ("job.cancelled", "users")


def test_what_was_refused_is_no_act(web, root, ada):
    job = web.app.jobs.enqueue("mail")

    assert web.post(f"/api/jobs/{job.id}/requeue", as_=root).status_code == 409
    assert web.post("/api/topics/mail/purge", as_=ada).status_code == 403

    assert acts(web) == []


def test_the_first_superuser_is_on_record(web):
    web.api.shared.set_up_token = "token"
    new = {"token": "token", "email": "root@example.org", "password": PASSWORD}

    assert web.post("/api/setup", new).status_code == 201

    [(what, said)] = acts(web)
    assert (what, said["who"]["id"]) == ("account.created", said["account"])


@pytest.mark.one_database
def test_an_act_that_cannot_be_posted_was_done_all_the_same(web, root, monkeypatch, caplog):
    """The answer says what is true; the log has the act."""
    job = buried(web)

    async def lost(self: App, what: str, fields: object) -> None:
        msg = "the database went away"
        raise DatabaseUnavailable(msg)

    monkeypatch.setattr(type(web.app.acts), "anote", lost)
    with caplog.at_level(logging.ERROR):
        assert web.post(f"/api/jobs/{job.id}/requeue", as_=root).status_code == 200

    assert "job.requeued" in caplog.text
