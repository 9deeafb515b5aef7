"""Tasks are typed: mypy and pyright see each wrong call, and complain of no right one."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CALLS = ROOT / "tests" / "typing" / "calls.py"


def mypy() -> set[int]:
    command = [sys.executable, "-m", "mypy", "--strict", "--output", "json", str(CALLS)]
    lines = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    ).stdout.splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    assert found, lines
    return {each["line"] for each in found if each["severity"] == "error"}


def basedpyright() -> set[int]:
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error", str(CALLS)]
    output = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    ).stdout
    return {each["range"]["start"]["line"] + 1 for each in json.loads(output)["generalDiagnostics"]}


@pytest.mark.parametrize("checker", [mypy, basedpyright])
def test_a_type_checker_sees_each_wrong_call(checker):
    """DQ-13"""
    lines = CALLS.read_text().splitlines()
    wrong = {nth for nth, line in enumerate(lines, start=1) if re.search(r"# wrong$", line)}

    assert checker() == wrong
