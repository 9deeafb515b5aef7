"""What superusers see of the whole: their login, this server and its database."""

from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from tests.server.conftest import PASSWORD, refused, token_of
from towpath import Limit


def test_a_superuser_reads_its_login_and_when_it_ends(web, root):
    me = web.get("/api/me", as_=root).json()

    assert me["record"]["email"] == "root@example.org"
    assert me["record"]["collectionName"] == "_superusers"
    assert me["version"] == version("towpath")
    assert me["database"]["kind"] in {"sqlite", "postgresql", "memory"}
    assert me["database"]["name"] == web.app.database
    assert me["dashboard"] == web.api.dashboard.version
    web.api.shared.bundle = None
    assert web.get("/api/me", as_=root).json()["dashboard"] is None


def test_a_login_ends_when_it_says(web, root, clock):
    ends = datetime.fromisoformat(web.get("/api/me", as_=root).json()["expiresAt"])

    clock.advance(web.app.settings.token_lifetime - 2)
    assert web.get("/api/me", as_=root).status_code == 200
    clock.advance(3)

    assert abs(ends - datetime.fromtimestamp(clock() / 1e6, ends.tzinfo)) <= timedelta(seconds=3)
    assert refused(web.get("/api/me", as_=root)) == (401, "invalid_token")


def test_a_cookie_is_a_login_as_well(web, root):
    login = {"identity": "root@example.org", "password": PASSWORD, "cookie": True}
    web.post("/api/collections/_superusers/auth-with-password", login)

    assert web.get("/api/me").json()["record"]["email"] == "root@example.org"


def test_limits_are_listed(web, root):
    limit = Limit("mailer", concurrency=2, rate="6/m", burst=1)
    web.app.jobs.enqueue_many("mail", range(3), limit=limit)
    web.app.jobs.reserve("mail", limit=3)

    [found] = web.get("/api/limits", as_=root).json()["items"]

    assert (found["key"], found["concurrency"], found["pace"]) == ("mailer", 2, 10)
    assert (found["running"], found["blocked"]) == (1, 2)
    assert found["freeAt"] is not None


def test_the_doctor_names_the_topics_that_no_worker_serves_and_a_remedy(live_web):
    """P1 of the dashboard"""
    web = live_web
    root = token_of(web.app, "_superusers", "root@example.org")
    web.app.jobs.enqueue("reports", run_at=datetime.now(UTC) - timedelta(minutes=9))

    said = web.get("/api/doctor", as_=root).json()

    [found] = [check for check in said["items"] if check["code"] == "no_worker"]
    assert not said["healthy"]
    assert found["about"] == ["reports"]
    [remedy] = found["remedies"]
    assert remedy["label"] == "Pause reports"
    assert web(remedy["method"], remedy["path"], {}, as_=root).status_code == 204
    assert web.get("/api/doctor", as_=root).json()["at"] == said["at"]  # it is remembered
    again = web.get("/api/doctor?patience=61", as_=root).json()
    assert "no_worker" not in {check["code"] for check in again["items"]}


def test_settings_are_shown_without_secrets(quick_web, monkeypatch):
    web = quick_web
    root = token_of(web.app, "_superusers", "root@example.org")
    monkeypatch.setenv("TOWPATH_TTR", "300")

    found = {each["name"]: each for each in web.get("/api/settings", as_=root).json()["items"]}

    assert (found["webhook_key"]["value"], found["webhook_key"]["source"]) == ("•••", "given")
    assert found["jwt_secret"]["value"] == ""
    assert found["ttr"]["source"] == "environment"
    assert found["lanes"] == {
        "name": "lanes",
        "value": 2,
        "default": 2,
        "source": "default",
        "about": "PostgreSQL connections per event loop, and for all threads; as many for lists",
    }
    assert all(each["about"] for each in found.values())
