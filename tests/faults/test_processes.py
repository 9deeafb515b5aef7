"""The programs of these tests: none outlives the test process, however that one ends."""

import subprocess
import sys

import psutil
import pytest

from tests.faults.processes import ROOT, wait_until


@pytest.mark.parametrize("moment", ["while they start", "while they work"])
def test_a_killed_test_process_leaves_no_program(tmp_path, moment):
    owner = """if True:
        import pathlib, sys, time
        from tests.faults.processes import Program, wait_until
        here = pathlib.Path(sys.argv[1])
        records = [here / "1", here / "2"]
        programs = [
            Program("juggle", url=f"sqlite:///{here}/test.db", settings={}, record=str(r), seed=1)
            for r in records
        ]
        if sys.argv[2] == "while they work":
            wait_until(lambda: all(record.exists() for record in records))
        print(*(program.pid for program in programs), flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", owner, str(tmp_path), moment],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        programs = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        process.kill()
    try:
        assert len(programs) == 2
        wait_until(lambda: not any(map(is_alive, programs)))
    finally:
        for program in filter(is_alive, programs):
            program.kill()


def is_alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # an orphan waits for init to notice it
    except psutil.NoSuchProcess:
        return False
