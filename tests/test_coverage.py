"""How much of the code the tests reach: `./dev coverage` says, and fails below the bar."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_a_run_that_reaches_too_little_of_the_code_fails(tmp_path):
    """SC-8"""
    few = f"{ROOT}/tests/test_architecture.py::test_no_module_has_an_empty_name"  # runs none of it
    command = [sys.executable, "-m", "pytest", "--cov", "-n0", "-q", "-p", "no:cacheprovider", few]
    data = {"COVERAGE_FILE": str(tmp_path / "data"), "PATH": "/usr/bin:/bin"}

    done = subprocess.run(command, cwd=ROOT, env=data, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "Required test coverage of 80.0% not reached" in done.stdout
