"""Accounts over HTTP: fields and passwords."""

from tests.server.conftest import refused


def test_the_last_field_of_an_account_can_be_taken_away(web, root, ada):
    me = web.app.accounts.verify(ada).id

    said = web.patch(f"/api/collections/users/records/{me}", {"role": None}, as_=root)

    assert said.status_code == 200
    assert web.app.accounts.get("users", me).fields == {}


def test_an_old_password_is_not_kept_as_a_field(web, root, ada):
    me = web.app.accounts.verify(ada).id
    change = {"oldPassword": "x", "password": "battery staple", "passwordConfirm": "battery staple"}

    said = web.patch(f"/api/collections/users/records/{me}", change, as_=root)

    assert "oldPassword" not in said.json()
    new = {"email": "x@example.org", "password": "battery staple", "fields": {"role": "a"}}
    assert refused(web.post("/api/collections/users/records", new, as_=root)) == (400, "invalid")
