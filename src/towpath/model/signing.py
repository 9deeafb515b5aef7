"""What a subscription keeps sealed: the secrets that sign its requests, and its custom headers."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

MOST_SECRETS: Final = 4  # that sign at once: the newest, and old ones while they overlap


class SigningSecret(Struct, frozen=True):
    """A secret, and until when it signs."""

    secret: str
    until: int | None = None  # microseconds since 1970; None: it is the newest

    def __repr__(self) -> str:
        """Return nothing of the secret."""
        return f"SigningSecret(until={self.until})"


class SubscriptionSecrets(Struct, frozen=True):
    """The secrets of a subscription, the newest first, and its custom headers."""

    secrets: Sequence[SigningSecret]
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Return nothing that is secret."""
        return f"SubscriptionSecrets({len(self.secrets)} secrets, {len(self.headers)} headers)"

    @classmethod
    def of(cls, secret: str, headers: Mapping[str, str]) -> "SubscriptionSecrets":
        """Return those of a new subscription."""
        return cls([SigningSecret(secret)], headers)

    @classmethod
    def from_text(cls, text: str) -> "SubscriptionSecrets":
        """Return what was sealed."""
        return _decoder.decode(text)

    def as_text(self) -> str:
        """Return the text to seal."""
        return msgspec.json.encode(self).decode()

    def signing(self, now: int) -> list[str]:
        """Return the secrets that sign now, the newest first."""
        return [each.secret for each in self.secrets if each.until is None or now < each.until]

    def rotated(self, secret: str, now: int, overlap: int) -> "SubscriptionSecrets":
        """Sign with another secret, and beside it for a while with those of before."""
        until = now + overlap
        old = [
            replace(each, until=until if each.until is None else min(each.until, until))
            for each in self.secrets
        ]
        live = [each for each in old if each.until is not None and now < each.until]
        return replace(self, secrets=[SigningSecret(secret), *live][:MOST_SECRETS])


_decoder: Final = msgspec.json.Decoder(SubscriptionSecrets)
