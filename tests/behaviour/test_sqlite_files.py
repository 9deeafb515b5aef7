"""The files of SQLite: who may read them, and what happens when they change under an app."""

import os
import sqlite3
from pathlib import Path

import pytest

from towpath import App


@pytest.fixture
def kind():
    return "sqlite"


@pytest.fixture
def path(tmp_path) -> Path:
    """The file of `make_app`."""
    return tmp_path / "test.db"


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def _umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    """The modes of a database and of what lies beside it."""
    return {
        each.name.removeprefix(path.name): each.stat().st_mode & 0o777
        for each in path.parent.glob(f"{path.name}*")
    }


# ---------------------------------------------------------------- who may read them


@pytest.mark.usefixtures("_umask")
def test_new_files_are_for_their_owner_alone(live, path):
    live.jobs.enqueue("mail")
    live.jobs.list()

    assert modes(path) == {"": 0o600, "-wal": 0o600, "-shm": 0o600, "-turn": 0o600}


@pytest.mark.usefixtures("_umask")
def test_a_new_file_behind_a_link_is_for_its_owner_alone(path, tmp_path):
    (tmp_path / "link.db").symlink_to(path)
    with App(f"sqlite:///{tmp_path}/link.db") as app:
        app.jobs.enqueue("mail")

        assert modes(path) == {"": 0o600, "-wal": 0o600, "-shm": 0o600}
        assert modes(tmp_path / "link.db")["-turn"] == 0o600


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize(("mode", "turn"), [(0o660, 0o660), (0o644, 0o600), (0o666, 0o666)])
def test_a_file_that_is_there_keeps_its_mode_and_all_its_writers_may_take_turns(
    live, path, mode, turn
):
    sqlite3.connect(path).execute("create table theirs (a)").connection.close()
    path.chmod(mode)

    live.jobs.enqueue("mail")

    assert modes(path) == {"": mode, "-wal": mode, "-shm": mode, "-turn": turn}


def test_the_doctor_warns_of_a_file_that_everybody_may_read(live, path):
    live.migrate()
    assert [check.verdict for check in live.doctor() if check.name == "rights"] == ["ok"]
    path.chmod(0o644)

    [rights] = [check for check in live.doctor() if check.name == "rights"]
    assert (rights.verdict, str(path) in rights.message) == ("warning", True)
    assert f"chmod o-rwx {path}" in rights.advice

    path.chmod(0o640)  # a group may be meant
    assert [check.verdict for check in live.doctor() if check.name == "rights"] == ["ok"]
