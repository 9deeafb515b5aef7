"""How long a failed job waits before its next try."""

from typing import Final

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Exponential: `first` seconds, then `factor` times as long each time, up to `most`."""

    first: float = 60.0
    factor: float = 4.0
    most: float = 86_400.0

    def seconds(self, failures: int) -> float:
        """Return the wait after the given number of failures (1 is the first)."""
        # The exponent is capped because 4.0 ** 1000 overflows long after `most` is reached.
        return min(self.first * self.factor ** min(failures - 1, 64), self.most)


DEFAULT: Final = Backoff()
