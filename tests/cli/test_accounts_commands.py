"""Users, superusers, API keys and rules of access, from a shell."""

import json

import pytest

from tests.cli.conftest import Towpath

pytestmark = pytest.mark.usefixtures("quick_passwords")
PASSWORD = "correct horse"
CREATE = ("users", "create", "ada@example.com", "--password-stdin")


# ---------------------------------------------------------------- superusers


def test_the_first_superuser_brings_the_tables_along(tmp_path):
    towpath = Towpath(tmp_path, TOWPATH_DATABASE="sqlite:///new.db")
    towpath("superuser", "list", code=1)
    done = towpath("superuser", "create", "Root@Example.com", "--password-stdin", said=PASSWORD)
    assert done.stdout == "root@example.com is a superuser of sqlite:///new.db\n"
    assert [each["email"] for each in towpath.json("superuser", "list")["superusers"]] == [
        "root@example.com"
    ]


def test_a_superusers_password_is_set_and_ends_tokens(app, towpath):
    root = app.accounts.create("_superusers", "root@example.com", PASSWORD)
    token = app.accounts.token(root)
    done = towpath(
        "superuser", "password", "root@example.com", "--password-stdin", said="a new password\n"
    )
    assert "all its logins have ended" in done.stdout
    app.accounts.login("_superusers", "root@example.com", "a new password")
    with pytest.raises(Exception, match="not valid"):
        app.accounts.verify(token)


def test_the_last_superuser_is_kept(app, towpath):
    app.accounts.create("_superusers", "root@example.com", PASSWORD)
    refused = towpath("superuser", "delete", "root@example.com", code=1)
    assert refused.stderr.startswith("towpath: the last superuser cannot be deleted")

    app.accounts.create("_superusers", "toor@example.com", PASSWORD)
    assert towpath("superuser", "delete", "root@example.com").stdout.endswith("is deleted\n")
    assert app.accounts.count("_superusers") == 1


def test_a_password_is_asked_for_twice_and_not_shown(app, towpath):
    def create(email, second):
        answers = [("password: ", f"{PASSWORD}\n"), ("password again: ", f"{second}\n")]
        return towpath.in_terminal("superuser", "create", email, answers=answers)

    code, shown = create("root@example.com", PASSWORD)
    assert code == 0, shown
    assert "is a superuser" in shown
    assert PASSWORD not in shown
    app.accounts.login("_superusers", "root@example.com", PASSWORD)

    code, shown = create("toor@example.com", "another one")
    assert (code, app.accounts.count("_superusers")) == (1, 1)
    assert "differ" in shown


# ---------------------------------------------------------------- users


def test_users_are_created_shown_changed_and_deleted(app, towpath):
    towpath(
        *CREATE, "--name", "Ada", "--field", "role=editor", "--field", "team=a=b", said=PASSWORD
    )
    ada = app.accounts.get("users", "ada@example.com")
    assert (ada.name, ada.fields) == ("Ada", {"role": "editor", "team": "a=b"})
    assert app.accounts.login("users", "ada@example.com", PASSWORD)[0] == ada

    [found] = towpath.json("users")["users"]
    assert (found["id"], found["fields"]) == (ada.id, {"role": "editor", "team": "a=b"})
    assert "password" not in found
    assert "ada@example.com" in towpath("users").stdout
    assert "editor" in towpath("users", "show", "ADA@example.com").stdout

    towpath("users", "update", "ada@example.com", "--field", "role=", "--email", "l@example.com")
    changed = app.accounts.get("users", "l@example.com")
    assert (changed.id, changed.name, changed.fields) == (ada.id, "Ada", {"team": "a=b"})
    towpath("users", "update", "l@example.com", "--password-stdin", said="a new password")
    app.accounts.login("users", "l@example.com", "a new password")

    assert towpath("users", "delete", "l@example.com").stdout == "l@example.com is deleted\n"
    assert towpath.json("users") == {"users": []}


def test_errors_are_one_line_or_one_document(app, towpath):
    towpath(*CREATE, said=PASSWORD)
    again = towpath(*CREATE, said=PASSWORD, code=1)
    assert again.stderr == "towpath: there is an account ada@example.com already\n"
    again = towpath(*CREATE, "--json", said=PASSWORD, code=1)
    assert json.loads(again.stderr)["code"] == "account_exists"
    short = towpath("users", "create", "b@example.com", "--password-stdin", said="short", code=1)
    assert "8 to 1,000 characters" in short.stderr
    assert "there is no account" in towpath("users", "show", "x@example.com", code=1).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("users", "create"),
        ("users", "list", "ada@example.com"),
        ("users", "create", "ada@example.com"),
        ("users", "create", "ada@example.com", "--password-stdin", "--field", "role"),
        ("users", "update", "ada@example.com"),
        ("users", "delete", "ada@example.com", "--name", "Ada"),
        ("superuser", "create"),
        ("superuser", "create", "ada@example.com", "secret password"),
        ("keys", "create", "ci"),
        ("keys", "create", "--scope", "enqueue"),
        ("keys", "create", "a", "b", "--scope", "enqueue"),
        ("keys", "create", "ci", "--scope", "admin"),
        ("keys", "create", "ci", "--scope", "work", "--expires", "soon"),
        ("keys", "list", "ci"),
        ("keys", "revoke"),
        ("keys", "revoke", "x", "--scope", "work"),
        ("access", "set"),
        ("access", "set", "--topic", "mail"),
        ("access", "set", "--topic", "mail", "--http", "on"),
        ("access", "set", "--http", "maybe"),
        ("access", "unset"),
        ("access", "unset", "--topic", "mail", "--work-rule", ""),
        ("access", "--work-rule", ""),
        ("access", "show", "--topic", "mail"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(app, towpath, words):
    assert towpath(*words, code=2).stderr.startswith("towpath: ")
    assert app.access.version() == 0


# ---------------------------------------------------------------- keys


def test_a_key_is_created_listed_and_revoked(app, towpath):
    secret = towpath(
        "keys", "create", "ci", "--scope", "enqueue", "--scope", "work", "--topic", "mail",
        "--expires", "90d",
    ).stdout.strip()  # fmt: skip
    key = app.keys.verify(secret)
    assert (key.name, key.scopes, key.topics) == ("ci", ("enqueue", "work"), ("mail",))
    assert (key.expires_at - key.created_at).days == 90

    listed = towpath("keys").stdout
    assert secret[:8] in listed
    assert secret not in listed
    assert secret not in json.dumps(towpath.json("keys"))
    assert towpath("keys", "revoke", key.id).stdout == f"{key.id} is revoked\n"
    assert app.keys.list() == []
    assert "there is no API key" in towpath("keys", "revoke", key.id, code=1).stderr

    made = towpath.json("keys", "create", "cd", "--scope", "metrics")
    assert app.keys.verify(made["secret"]).id == made["key"]["id"]
    assert made["key"]["expires_at"] is None


# ---------------------------------------------------------------- access


def test_rules_are_shown_set_and_taken_away(app, towpath):
    assert "superusers only" in towpath("access").stdout

    towpath("access", "set", "--access-rule", "true", "--work-rule", "@request.auth.id != ''")
    towpath("access", "set", "--http", "off", "--allowed-topics", "mail, post")
    towpath("access", "set", "--topic", "mail", "--enqueue-rule", "")
    found = towpath.json("access")["access"]
    assert (found["enqueue_rule"], found["manage_rule"]) == ("true", "true")
    assert (found["http_enabled"], found["allowed_topics"]) == (False, ["mail", "post"])
    assert found["topics"] == {"mail": {"enqueue_rule": ""}}
    assert "HTTP is off" in towpath("access", "show").stdout

    towpath("access", "set", "--topic", "mail", "--access-rule", "true")
    assert app.access.get().topics["mail"].manage_rule == "true"
    towpath("access", "unset", "--topic", "mail")
    towpath("access", "set", "--allowed-topics", "", "--http", "on")
    changed = app.access.get()
    assert (changed.topics, changed.allowed_topics, changed.http_enabled) == ({}, (), True)


def test_a_rule_that_cannot_be_read_is_refused(app, towpath):
    refused = towpath("access", "set", "--enqueue-rule", "true && (", "--json", code=1)
    assert json.loads(refused.stderr)["code"] == "invalid_rule"
    assert app.access.version() == 0
