"""An earlier commit and this one by turns: has anything become slower?

Both run the benchmarks of this tree, so that only the source differs.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from bench.report import Report, about, load, save, show
from bench.rounds import Result

ROOT = Path(__file__).parent.parent


def main(arguments: Sequence[str]) -> None:
    """Run `bench against COMMIT what …`."""
    parser = argparse.ArgumentParser(prog="bench against", description=__doc__)
    parser.add_argument("commit", help="the earlier one")
    parser.add_argument("--times", type=int, default=3, help="how often each of them runs")
    parser.add_argument("--on", default="postgres", help="the database")
    parser.add_argument("what", nargs="+", help="benchmarks that both commits have")
    given = parser.parse_args(arguments)
    words = [*given.what, "--on", given.on]
    runs: dict[str, list[Result]] = {}
    with checked_out(given.commit) as before:
        for _ in range(given.times):
            for tree in (before, ROOT):
                runs.setdefault(str(tree), []).extend(run(tree, words))
    results = list(joined(*runs.values(), given.commit))
    report = Report(about={**about(), "against": given.commit}, results=results)
    show(report)
    print(save(report, None))


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="towpath-bench-") as directory:
        tree = Path(directory) / "tree"
        git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True)  # noqa: S607 - whichever git there is


def run(tree: Path, words: Sequence[str]) -> list[Result]:
    """Run benchmarks with the source of a tree and the packages of this environment."""
    told = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with tempfile.TemporaryDirectory(prefix="towpath-bench-") as directory:
        path = Path(directory) / "run.json"
        command = [sys.executable, "-m", "bench", *words, "--json", str(path)]
        subprocess.run(command, cwd=ROOT, env=told, check=True, stdout=subprocess.DEVNULL)
        return load(path).results


def joined(before: Sequence[Result], after: Sequence[Result], commit: str) -> Iterator[Result]:
    """Put the values of the earlier commit in the place of the bare ones."""
    for name in dict.fromkeys((each.database, each.what) for each in after):
        old = [each for each in before if (each.database, each.what) == name]
        new = [each for each in after if (each.database, each.what) == name]
        if old:
            yield replace(
                new[0],
                what=f"{name[1]}; bare = {commit}",
                ours=[value for each in new for value in each.ours],
                bare=[value for each in old for value in each.ours],
                cpu_us=[],
                floor=None,
                details={},
            )
