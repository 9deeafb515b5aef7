"""What superusers see of the whole: their login, this server and its database."""

from datetime import datetime, timedelta
from importlib.metadata import version

from tests.server.conftest import PASSWORD, refused


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
