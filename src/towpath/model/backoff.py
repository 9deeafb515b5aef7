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
        try:
            return min(self.first * self.factor ** (failures - 1), self.most)
        except OverflowError:
            return self.most


DEFAULT: Final = Backoff()
