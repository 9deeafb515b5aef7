"""External tokens: by a shared secret, or by keys that are fetched from elsewhere."""

import asyncio
import base64
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from towpath import Settings
from towpath.app import external
from towpath.app.external import External
from towpath.errors import Invalid, InvalidToken

SECRET = "a-shared-secret-of-more-than-32-bytes"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGERS = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def said(**claims):
    return {"sub": "u1", "exp": int(time.time()) + 600, **claims}


@pytest.fixture(params=["blocking", "async"])
def told_by(request, loop):
    """Verify a token, in both colours."""

    def verify(external, token):
        if request.param == "blocking":
            return external.verify(token)
        return asyncio.run_coroutine_threadsafe(external.averify(token), loop).result(60)

    return verify


class Issuer:
    """Serves public keys, and counts the requests."""

    def __init__(self):
        self.asked = 0
        self.status = 200
        self.keys = [
            {**RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True), "kid": "rsa", "use": "sig"},
            {**ECAlgorithm.to_jwk(EC.public_key(), as_dict=True), "kid": "ec"},
            {**OKPAlgorithm.to_jwk(ED.public_key(), as_dict=True), "kid": "ed"},
            # No issuer should show one, but some have.
            {"kty": "oct", "kid": "oct", "k": base64.urlsafe_b64encode(SECRET.encode()).decode()},
        ]
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.asked += 1
                body = json.dumps({"keys": issuer.keys}).encode()
                self.send_response(issuer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks.json"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def issuer():
    issuer = Issuer()
    yield issuer
    issuer.close()


def by_key(key, kid, algorithm, **claims):
    return jwt.encode(said(**claims), key, algorithm=algorithm, headers={"kid": kid})


def test_a_token_of_the_shared_secret_names_a_user(told_by):
    here = External(Settings(jwt_secret=SECRET))
    token = jwt.encode(
        said(email="ada@example.com", name="Ada", role="editor", iat=1_700_000_000), SECRET
    )
    ada = told_by(here, token)

    assert (ada.id, ada.collection, ada.email, ada.name) == (
        "u1",
        "users",
        "ada@example.com",
        "Ada",
    )
    assert ada.fields["role"] == "editor"
    assert ada.created_at.timestamp() == 1_700_000_000


def test_claims_do_not_make_a_superuser_nor_hide_what_every_account_has(told_by):
    here = External(Settings(jwt_secret=SECRET))
    token = jwt.encode(
        said(id="root", collectionName="_superusers", collectionId="x", email=["a"], name=7), SECRET
    )
    user = told_by(here, token)

    assert (user.id, user.collection, user.email, user.name) == ("u1", "users", "", "")
    assert user.fields.keys() == {"exp"}


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": int(time.time()) - 60},
        {"exp": None},
        {"exp": "never"},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 201},
        {"nbf": int(time.time()) + 86_400},
    ],
)
def test_claims_that_do_not_hold_are_refused(told_by, claims):
    made = {name: value for name, value in said(**claims).items() if value is not None}
    with pytest.raises(InvalidToken):
        told_by(External(Settings(jwt_secret=SECRET)), jwt.encode(made, SECRET))


def test_issuer_and_audience_are_those_that_were_set(told_by):
    here = External(Settings(jwt_secret=SECRET, jwt_issuer="me", jwt_audience="towpath"))
    for wrong in (
        {},
        {"iss": "me"},
        {"aud": "towpath"},
        {"iss": "you", "aud": "towpath"},
        {"iss": "me", "aud": "shop"},
    ):
        with pytest.raises(InvalidToken):
            told_by(here, jwt.encode(said(**wrong), SECRET))
    told_by(here, jwt.encode(said(iss="me", aud=["shop", "towpath"]), SECRET))

    anybodys = External(Settings(jwt_secret=SECRET))
    told_by(anybodys, jwt.encode(said(iss="you", aud="shop"), SECRET))


def test_public_keys_are_fetched_once(told_by, issuer):
    here = External(Settings(jwt_jwks_url=issuer.url))
    for key, kid, algorithm in (
        (RSA, "rsa", "RS256"),
        (RSA, "rsa", "PS256"),
        (EC, "ec", "ES256"),
        (ED, "ed", "EdDSA"),
    ):
        assert told_by(here, by_key(key, kid, algorithm)).id == "u1"
    assert issuer.asked == 1


def test_one_algorithm_is_not_taken_for_another(told_by, issuer):
    """The classic: a public key, which everybody knows, used as the secret of HS256."""
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    body = jwt.encode(said(), SECRET, headers={"kid": "rsa"}).rsplit(".", 1)[0]
    algorithm = jwt.get_algorithm_by_name("HS256")
    signature = base64.urlsafe_b64encode(algorithm.sign(body.encode(), pem)).rstrip(b"=").decode()
    confused = f"{body}.{signature}"
    both = External(Settings(jwt_jwks_url=issuer.url, jwt_secret=SECRET))
    keys = External(Settings(jwt_jwks_url=issuer.url))
    shared = External(Settings(jwt_secret=SECRET))

    wrong = [
        (both, confused),
        (keys, confused),
        (keys, jwt.encode(said(), SECRET)),
        (keys, jwt.encode(said(), SECRET, headers={"kid": "oct"})),
        (shared, by_key(RSA, "rsa", "RS256")),
        (both, by_key(EC, "rsa", "ES256")),
        (both, by_key(RSA, "ec", "RS256")),
        (both, by_key(RSA, "ed", "RS256")),
        (both, by_key(RSA, "oct", "RS256")),
        (both, by_key(RSA, "rsa", "RS512")),
        (both, by_key(STRANGERS, "rsa", "RS256")),
        (both, jwt.encode(said(), SECRET * 2, algorithm="HS512")),
        (both, jwt.encode(said(), None, algorithm="none")),
        (both, jwt.encode(said(), None, algorithm="none", headers={"kid": "rsa"})),
        (both, jwt.encode(said(), RSA, algorithm="RS256")),
        (External(Settings()), jwt.encode(said(), SECRET)),
    ]  # fmt: skip
    for here, token in wrong:
        with pytest.raises(InvalidToken):
            told_by(here, token)
    assert told_by(both, jwt.encode(said(), SECRET)).id == "u1"
    assert told_by(both, by_key(RSA, "rsa", "RS256")).id == "u1"


def test_a_flood_of_unknown_keys_does_not_reach_the_issuer(told_by, issuer):
    here = External(Settings(jwt_jwks_url=issuer.url))
    for n in range(50):
        with pytest.raises(InvalidToken):
            told_by(here, by_key(RSA, f"unknown {n}", "RS256"))
    assert issuer.asked == 1


def test_a_new_key_is_found_after_the_rest(told_by, issuer, monkeypatch):
    monkeypatch.setattr(external, "REST", 0.0)
    here = External(Settings(jwt_jwks_url=issuer.url))
    told_by(here, by_key(RSA, "rsa", "RS256"))
    issuer.keys[0]["kid"] = "newer"
    assert told_by(here, by_key(RSA, "newer", "RS256")).id == "u1"
    with pytest.raises(InvalidToken):
        told_by(here, by_key(RSA, "rsa", "RS256"))  # which the issuer has taken back


def test_an_issuer_that_fails_does_not_take_known_keys_away(told_by, issuer, monkeypatch, caplog):
    for name in ("REST", "REST_AFTER_FAILURE", "FRESH"):
        monkeypatch.setattr(external, name, 0.0)
    here = External(Settings(jwt_jwks_url=issuer.url))
    told_by(here, by_key(RSA, "rsa", "RS256"))
    issuer.status = 500
    with pytest.raises(InvalidToken):
        told_by(here, by_key(RSA, "unknown", "RS256"))
    assert "could not fetch the public keys" in caplog.text
    told_by(here, by_key(RSA, "rsa", "RS256"))


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "x" * 10**6, "\ud800", None, "e30.e30."])
def test_what_is_no_token_is_refused(told_by, token):
    with pytest.raises(InvalidToken):
        told_by(External(Settings(jwt_secret=SECRET)), token)


@pytest.mark.parametrize(
    "wrong",
    [{"jwt_secret": "short"}, {"jwt_jwks_url": "file:///etc/passwd"}, {"token_lifetime": 0}],
)
def test_settings_that_are_not_safe_are_refused(wrong):
    with pytest.raises(Invalid):
        Settings(**wrong)


def test_a_secret_is_not_shown_with_the_settings():
    assert SECRET not in repr(Settings(jwt_secret=SECRET))
