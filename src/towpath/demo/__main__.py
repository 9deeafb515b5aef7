"""`./dev demo`: its parts, one after the other, in a temporary database."""

import logging
import signal
import sys
import tempfile
from pathlib import Path

from towpath.demo import answer, crash, delivery


def main() -> None:
    """Run the demo, or one of its processes."""
    logging.getLogger("towpath").addHandler(logging.NullHandler())  # the screen is for the demo
    match sys.argv[1:]:
        case ["produce", url]:
            crash.produce(url)
        case ["work", url]:
            crash.work(url)
        case ["speak", url]:
            answer.speak(url)
        case ["deliver", url]:
            delivery.deliver(url)
        case []:
            for end in (signal.SIGHUP, signal.SIGTERM):
                signal.signal(end, signal.default_int_handler)  # as Ctrl-C does: all parts end
            with tempfile.TemporaryDirectory() as directory:
                url = f"sqlite:///{Path(directory) / 'demo.db'}"
                if not (crash.show(url) and answer.show(url) and delivery.show(url)):
                    sys.exit(1)
        case _:
            sys.exit("usage: ./dev demo [agent]")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
