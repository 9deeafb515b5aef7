"""The examples run as they stand; those of FastAPI and Django are with their frameworks' tests."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(*command, cwd, check=True, **options):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment,
        check=check,
        timeout=120,
        capture_output=True,
        text=True,
        **options,
    )


def test_us1_5_the_orders_of_sqlalchemy(tmp_path):
    done = run(EXAMPLES / "sqlalchemy_orders.py", cwd=tmp_path)

    assert done.stdout.splitlines() == [
        "refused: there is nothing to order",
        "orders [1, 2] checks [1, 2]",
    ]
