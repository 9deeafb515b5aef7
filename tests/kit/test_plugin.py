"""The pytest plugin, in the pytest of a user."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
USERS_APP = """
    from towpath import App

    app = App("postgresql://nobody@nowhere.invalid/production")


    @app.task()
    def remind(who: str) -> str:
        return f"reminded {who}"
"""


@pytest.fixture
def user(pytester, monkeypatch):
    """A project with an app in shop.py, whose pytest has our plugin."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{pytester.path}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # ours are many, and slow to load
    pytester.makepyfile(shop=USERS_APP)
    pytester.makeini("[pytest]\ntowpath_app = shop:app")
    return pytester


def run(user, *options):
    return user.runpytest_subprocess("-p", "pytest_towpath", "-p", "no:cacheprovider", *options)


def test_a_test_with_towpath_jobs_does_not_touch_the_real_database(user):
    user.makepyfile(
        """
        from shop import remind


        def test_a_reminder(towpath_jobs):
            job = remind.using(delay="15m").enqueue("ada")
            towpath_jobs.assert_enqueued(remind.using(delay="15m"), who="ada")
            towpath_jobs.clock.advance("15m")
            towpath_jobs.run()
            assert job.result() == "reminded ada"


        def test_another_one_begins_with_nothing(towpath_jobs):
            towpath_jobs.assert_nothing_enqueued()
        """
    )

    run(user).assert_outcomes(passed=2)


def test_tests_in_parallel_do_not_see_each_other(user):
    user.makepyfile(
        """
        import pytest
        from shop import remind


        @pytest.mark.parametrize("who", range(6))
        def test_it(towpath_jobs, who):
            remind.enqueue(str(who))
            assert [job.returned for job in towpath_jobs.run()] == [f"reminded {who}"]
        """
    )

    run(user, "-p", "xdist", "-n", "2").assert_outcomes(passed=6)


def test_an_impatient_user_does_not_wait_for_a_task_that_hangs(user):
    user.makepyfile(
        """
        import asyncio, os, signal
        from shop import app


        @app.task()
        async def hang() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(600)


        def test_it(towpath_jobs):
            hang.enqueue()
            towpath_jobs.run()
        """
    )

    run(user).stdout.fnmatch_lines(["*KeyboardInterrupt*"])


def test_a_failing_assertion_points_at_the_test(user):
    user.makepyfile(
        """
        from shop import remind


        def test_it(towpath_jobs):
            remind.enqueue("ada")
            towpath_jobs.assert_enqueued(remind, who="bob")
        """
    )
    result = run(user)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E*no job of 'remind' waits with who='bob'*", 'E*{"who":"ada"}*', "*.py:6: AssertionError"]
    )


@pytest.mark.parametrize(
    ("configured", "said"),
    [("", "towpath_jobs needs `towpath_app = module:app`*"), ("shop:remind", "*is not an app*")],
)
def test_a_missing_or_wrong_app_is_explained(user, configured, said):
    user.makeini(f"[pytest]\ntowpath_app = {configured}")
    user.makepyfile("def test_it(towpath_jobs): ...")

    run(user).stdout.fnmatch_lines([f"*{said}"])


def test_the_plugin_costs_nothing_where_it_is_not_used():
    """It is loaded in every run of pytest where Towpath is installed."""
    program = "import sys, pytest_towpath; sys.exit(str({'towpath', 'psycopg'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr.strip() == "set()"


def test_pytest_finds_the_plugin_by_itself():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["pytest11"] == {"pytest_towpath": "pytest_towpath"}
