"""What `./dev` does beyond starting a program, without its virtual environment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.conftest import eventually
from tests.test_servers import is_alive

# Runs in a process of its own, as `./dev flakes ARGUMENTS` does, on the Python of this test.
FLAKES = f"""
import sys
from importlib import machinery, util
from pathlib import Path
loader = machinery.SourceFileLoader("dev", {str(Path(__file__).parent.parent / "dev")!r})
dev = util.module_from_spec(util.spec_from_loader("dev", loader))
loader.exec_module(dev)
dev.PYTHON = Path(sys.executable)
dev.flakes(sys.argv[1:])
"""
SOMETIMES = """
from pathlib import Path

def test_a_good_one():
    pass

def test_a_bad_one():
    assert False

def test_an_unsteady_one():
    mark = Path(__file__).with_name("mark")
    mark.write_text(mark.read_text() + "x" if mark.exists() else "x")
    assert mark.read_text() != "xx"
"""
HANGING = """
import time
from pathlib import Path

def test_a_bad_one():
    assert False

def test_a_hanging_one():
    Path(__file__).with_name("mark").touch()
    time.sleep(60)
"""


def flakes(tmp_path: Path, tests: str, times: str) -> subprocess.Popen[str]:
    file = tmp_path / "test_them.py"
    file.write_text(tests)
    # The run inside has no settings of this run or the repository; plugins would only cost time.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.Popen(
        [sys.executable, "-B", "-c", FLAKES, times, str(file)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_flakes_counts_how_often_each_test_failed(tmp_path):
    with flakes(tmp_path, SOMETIMES, "3") as running:
        said, _ = running.communicate(timeout=100)

    assert running.returncode == 1
    assert "run 1 of 3: 1 failed; in all runs 1 tests" in said
    assert "run 2 of 3: 2 failed; in all runs 2 tests" in said
    assert said.splitlines()[-2:] == [
        "   3 of 3  test_them.py::test_a_bad_one",
        "   1 of 3  test_them.py::test_an_unsteady_one",
    ]


def test_flakes_ends_well_if_nothing_failed(tmp_path):
    with flakes(tmp_path, "def test_a_good_one(): pass", "2") as running:
        said, _ = running.communicate(timeout=100)

    assert running.returncode == 0, said


def test_flakes_ends_its_busy_loops_at_ctrl_c_and_tells_what_failed_so_far(tmp_path):
    with flakes(tmp_path, HANGING, "9") as running:
        eventually((tmp_path / "mark").exists)
        children = psutil.Process(running.pid).children()
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        said, _ = running.communicate(timeout=60)

    assert len(children) == 3  # two busy loops and pytest
    assert not any(map(is_alive, children))
    assert running.returncode == 1
    assert said.splitlines()[-1] == "   1 of 1  test_them.py::test_a_bad_one"


def test_flakes_ends_its_busy_loops_when_it_is_killed(tmp_path):
    with flakes(tmp_path, HANGING, "9") as running:
        eventually((tmp_path / "mark").exists)
        children = psutil.Process(running.pid).children()
        *loops, pytest = sorted(children, key=lambda child: "pytest" in child.cmdline())
        running.kill()
        pytest.kill()

        eventually(lambda: not any(map(is_alive, loops)))


def test_flakes_says_how_it_is_called(tmp_path):
    with flakes(tmp_path, "", "tests/faults") as running:
        said, _ = running.communicate(timeout=100)

    assert running.returncode == 1
    assert said == "'tests/faults' is no number of runs; use: ./dev flakes 10 tests/faults\n"
