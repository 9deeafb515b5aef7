"""A clock at which whoever asks for the time stands still: in the middle of an operation."""

from threading import Event

from towpath.database.clock import machine_clock


class StoppingClock:
    """The real time, except that one who asks for it waits until told to go on."""

    def __init__(self) -> None:
        self.stopped = Event()
        self._go_on = Event()
        self._left = 0

    def __call__(self) -> int:
        self._left -= 1
        if self._left == 0:
            self.stopped.set()
            self._go_on.wait(30)
        return machine_clock()

    def stop_at(self, nth: int) -> None:
        """Stop the one who asks for the nth time from now."""
        self.stopped.clear()
        self._go_on.clear()
        self._left = nth

    def go_on(self) -> None:
        """Let it go on, and stop nobody any more."""
        self._left = 0
        self._go_on.set()
