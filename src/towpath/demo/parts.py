"""The processes of the demo."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

Process = subprocess.Popen[bytes]


@contextmanager
def started(*parts: tuple[str, str]) -> Generator[list[Process]]:
    """Run parts of the demo, each a name and a database, until the end of the block."""
    with ExitStack() as stack:
        processes = list[Process]()
        for part in parts:
            command = [sys.executable, "-m", "towpath.demo", *part]
            # Ctrl-C is for the demo itself, which then ends its parts.
            process = subprocess.Popen(command, process_group=0)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)
        yield processes
