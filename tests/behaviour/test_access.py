"""Access: the rules, and the version that tells every cache to look again."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from towpath import App
from towpath.app.waiters import ThreadWaiter
from towpath.errors import Invalid, InvalidRule, InvalidTopic
from towpath.model.access import Access, TopicAccess
from towpath.operation import Wakeup

pytestmark = pytest.mark.usefixtures("quick_passwords")
PASSWORD = "correct horse"
ANY_USER = "@request.auth.id != ''"


def test_at_first_all_is_for_superusers_only(app):
    """US9-1"""
    found = app.access.get()

    assert found == Access(version=0)
    assert (found.enqueue_rule, found.manage_rule, found.work_rule) == ("", "", "")
    assert (found.http_enabled, found.allowed_topics, found.topics) == (True, (), {})


def test_a_change_leaves_the_rest(app):
    app.access.set(enqueue_rule="true", allowed_topics=["mail", "mail", "post"])
    changed = app.access.set(http_enabled=False)

    assert (changed.enqueue_rule, changed.manage_rule) == ("true", "")
    assert (changed.http_enabled, changed.allowed_topics) == (False, ("mail", "post"))
    assert app.access.get() == changed
    assert app.access.set() == Access(
        enqueue_rule="true", http_enabled=False, allowed_topics=("mail", "post"), version=3
    )


def test_access_rule_sets_two_rules(app):
    changed = app.access.set(access_rule=ANY_USER, work_rule="true")
    assert (changed.enqueue_rule, changed.manage_rule) == (ANY_USER, ANY_USER)
    changed = app.access.set(access_rule="true", manage_rule="")
    assert (changed.enqueue_rule, changed.manage_rule, changed.work_rule) == ("true", "", "true")


def test_a_topic_has_rules_of_its_own_until_they_are_taken_away(app):
    app.access.set(topics={"mail": {"enqueue_rule": "true", "work_rule": ""}, "post": {}})
    changed = app.access.set(topics={"mail": {"manage_rule": ANY_USER}})
    assert changed.topics == {"mail": TopicAccess(manage_rule=ANY_USER), "post": TopicAccess()}
    assert app.access.get().topics == changed.topics

    changed = app.access.set(topics={"mail": None, "never": None})
    assert changed.topics == {"post": TopicAccess()}


WRONG = [
    ({"enqueue_rule": "id = "}, Invalid),
    ({"access_rule": "id = "}, Invalid),
    ({"work_rule": None}, Invalid),
    ({"manage_rule": 7}, Invalid),
    ({"http_enabled": "no"}, Invalid),
    ({"http_enabled": None}, Invalid),
    ({"allowed_topics": "mail"}, Invalid),
    ({"allowed_topics": 7}, Invalid),
    ({"allowed_topics": ["no topic"]}, InvalidTopic),
    ({"topics": []}, Invalid),
    ({"topics": {"no topic": {}}}, InvalidTopic),
    ({"topics": {"mail": "true"}}, Invalid),
    ({"topics": {"mail": {"rule": "true"}}}, Invalid),
    ({"topics": {"mail": {"enqueue_rule": "id = "}}}, Invalid),
    ({"version": 7}, Invalid),
    ({"nonsense": 7}, Invalid),
    ({"enqueue_rule": "@request.auth.name = '\ud800'"}, Invalid),
    ({"enqueue_rule": "true" + " " * 10**6}, Invalid),
]


def test_what_makes_no_sense_is_refused_and_changes_nothing(app):
    before = app.access.set(enqueue_rule="true")
    for wrong, error in WRONG:
        with pytest.raises(error):
            app.access.set(**{"manage_rule": "true", **wrong})
    assert app.access.get() == before


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"enqueue_rule": "true && ("}, "enqueue_rule"),
        ({"access_rule": "true && ("}, "enqueue_rule"),
        ({"topics": {"mail": {"work_rule": "true && ("}}}, "topics.mail.work_rule"),
    ],
)
@pytest.mark.one_database
def test_a_rule_that_cannot_be_read_is_refused_with_its_name_and_the_place(app, changes, name):
    with pytest.raises(InvalidRule, match=name) as refused:
        app.access.set(**changes)
    assert (refused.value.rule, refused.value.position) == (name, 9)


def test_changes_at_once_are_all_kept(durable_place):
    url, needed = durable_place
    apps = [App(url, **needed) for _ in range(4)]
    apps[0].migrate()

    def change(n):
        apps[n % 4].access.set(topics={f"t{n}": {"enqueue_rule": "true"}})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(20)))
    found = apps[0].access.get()
    assert len(found.topics) == 20
    assert found.version == 20
    for app in apps:
        app.close()


def changes(app):
    """Every verb that changes who may ask."""
    ada = app.accounts.create("users", "ada@example.com", PASSWORD)
    yield "create"
    app.accounts.create_first("root@example.com", PASSWORD)
    yield "create_first"
    app.accounts.update("users", ada.id, name="Ada")
    yield "update"
    app.accounts.revoke(app.accounts.token(ada))
    yield "revoke"
    app.accounts.revoke_all(ada)
    yield "revoke_all"
    app.accounts.delete("users", ada.id)
    yield "delete"
    key, _ = app.keys.create("ci", scopes=["enqueue"])
    yield "keys.create"
    app.keys.revoke(key.id)
    yield "keys.revoke"
    app.access.set(http_enabled=False)
    yield "access.set"


def test_every_change_raises_the_version(app):
    seen = [app.access.version()]
    for verb in changes(app):
        seen.append(app.access.version())
        assert seen[-1] > seen[-2], verb


def test_reading_does_not_raise_the_version(app):
    ada = app.accounts.create("users", "ada@example.com", PASSWORD)
    _, secret = app.keys.create("ci", scopes=["enqueue"])
    version = app.access.version()

    _, token = app.accounts.login("users", ada.email, PASSWORD)
    app.accounts.refresh(token)
    app.accounts.verify(token)
    app.accounts.list("users")
    app.keys.verify(secret)
    app.access.get()
    app.upkeep.run()
    assert app.access.version() == version


def test_every_change_wakes_who_waits_in_another_instance(durable_place):
    url, needed = durable_place
    with App(url, poll_interval=600, **needed) as here, App(url, **needed) as there:
        here.migrate()
        waiter = ThreadWaiter(())
        end = here._wakeups.subscribe(Wakeup("access"), waiter.wake)
        there.jobs.enqueue("mail")  # so that its bell is connected
        for verb in changes(there):
            assert waiter.wait(60), verb
            while waiter.wait(0.1):  # on a file, each commit rings
                pass
        end()
