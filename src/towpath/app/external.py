"""External tokens: users of another server, which signs by a shared secret or a private key."""

import asyncio
import logging
import time
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, Final

from towpath.errors import InvalidToken
from towpath.model.accounts import RESERVED, Account, Collection
from towpath.model.instants import as_datetime
from towpath.model.tokens import check_size, decoded, pyjwt
from towpath.settings import Settings

log: Final = logging.getLogger("towpath")

PUBLIC: Final = ("RS256", "PS256", "ES256", "EdDSA")  # algorithms that verify by a public key
SHARED: Final = "HS256"  # only with the shared secret: a public key is known to everyone
FRESH: Final = 300.0  # seconds for which fetched keys count as current
REST: Final = 60.0  # seconds between two fetches, even if tokens name unknown keys
REST_AFTER_FAILURE: Final = 5.0
FETCH_TIMEOUT: Final = 5.0
LEEWAY: Final = 10  # seconds by which clocks may differ
MOST_ID: Final = 200

Fetched = dict[str, Any]
"""Public keys by their names."""


class External:
    """Verifies tokens that another server has signed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = PublicKeys(settings.jwt_jwks_url)

    @property
    def is_set_up(self) -> bool:
        """Whether the settings name a secret or a URL of keys."""
        return bool(self._settings.jwt_secret or self._settings.jwt_jwks_url)

    def verify(self, token: str) -> Account:
        """Return the user of a token; InvalidToken if it is not valid."""
        kid, algorithm = self._header(token)
        if kid is None:
            return self._account(token, self._settings.jwt_secret, algorithm)
        fetch = self._keys.fetching(kid)
        if fetch:
            fetch.result()
        return self._account(token, self._keys.named(kid), algorithm)

    async def averify(self, token: str) -> Account:
        """Return the user of a token; InvalidToken if it is not valid."""
        kid, algorithm = self._header(token)
        if kid is None:
            return self._account(token, self._settings.jwt_secret, algorithm)
        fetch = self._keys.fetching(kid)
        if fetch:
            await asyncio.shield(asyncio.wrap_future(fetch))
        return self._account(token, self._keys.named(kid), algorithm)

    def _header(self, token: str) -> tuple[str | None, str]:
        """Return the name of a token's public key (None: the shared secret) and its algorithm."""
        check_size(token)
        jwt = pyjwt()
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise _refused("it is malformed") from error
        kid, algorithm = header.get("kid"), header.get("alg")
        if algorithm == SHARED and self._settings.jwt_secret:
            return None, SHARED
        if algorithm in PUBLIC and self._settings.jwt_jwks_url and isinstance(kid, str):
            return kid, algorithm
        raise _refused(f"signature algorithm {str(algorithm)[:20]!r} is not accepted here")

    def _account(self, token: str, key: Any, algorithm: str) -> Account:
        issuer, audience = self._settings.jwt_issuer, self._settings.jwt_audience
        claims = decoded(
            token,
            key,
            (algorithm,),
            {"require": ["exp", "sub"], "verify_aud": bool(audience), "verify_iss": bool(issuer)},
            issuer=issuer or None,
            audience=audience or None,
            leeway=LEEWAY,
        )
        id = claims.pop("sub")
        if not isinstance(id, str) or not 0 < len(id) <= MOST_ID:  # rules treat "" as anonymous
            raise _refused(f"its claim `sub` is not text of 1 to {MOST_ID} characters")
        email, name, at = claims.get("email"), claims.get("name"), claims.get("iat")
        since = as_datetime(int(at) * 10**6 if isinstance(at, int) else 0)
        return Account(
            id=id,
            collection=Collection.USERS,
            email=email if isinstance(email, str) else "",
            name=name if isinstance(name, str) else "",
            # A claim with a reserved name would hide the account's own value from the rules.
            fields={claim: value for claim, value in claims.items() if claim not in RESERVED},
            generation=0,
            created_at=since,
            updated_at=since,
        )


class PublicKeys:
    """The public keys at a URL; fetched in a thread, and seldom, even for unknown keys."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = Lock()
        self._known: Fetched = {}
        self._fresh_until = self._rest_until = 0.0
        self._fetch: Future[None] | None = None

    def named(self, kid: str) -> Any:
        """Return a key; raise InvalidToken if it is unknown."""
        key = self._known.get(kid)
        if key is None:
            raise _refused("its key is unknown")
        return key

    def fetching(self, kid: str) -> "Future[None] | None":
        """Return the fetch of all keys to wait for before this key is looked up, or None."""
        now = time.monotonic()
        known = kid in self._known
        with self._lock:
            if self._fetch is None and (
                now >= self._fresh_until or (not known and now >= self._rest_until)
            ):
                self._fetch = Future()
                Thread(target=self._go, args=(self._fetch,), daemon=True).start()
            # A known key is used at once, while newer keys are fetched.
            return None if known else self._fetch

    def _go(self, fetch: "Future[None]") -> None:
        rest = REST_AFTER_FAILURE
        try:
            self._known = self._fetched()
            rest = REST
        except Exception as error:  # noqa: BLE001 - after any error the old keys stay in use
            log.warning("could not fetch the public keys from %s: %s", self._url, error)
        with self._lock:
            now = time.monotonic()
            self._rest_until = now + rest
            self._fresh_until = now + (FRESH if rest == REST else rest)
            self._fetch = None
        fetch.set_result(None)

    def _fetched(self) -> Fetched:
        client = pyjwt().PyJWKClient(self._url, cache_jwk_set=False, timeout=FETCH_TIMEOUT)
        return {each.key_id: each.key for each in client.get_signing_keys()}


def _refused(why: str) -> InvalidToken:
    return InvalidToken(f"the token is not valid: {why}")
