"""The files of SQLite: who may read them, and what happens when they change under an app."""

import contextlib
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import eventually
from towpath import App
from towpath.database import sqlite
from towpath.errors import DatabaseUnavailable, NotFound

pytestmark = pytest.mark.both_colours


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


def test_the_doctor_warns_of_a_lock_that_everybody_may_hold(live, path):
    """A lock needs no right to write."""
    live.jobs.enqueue("mail")
    turn = Path(f"{path}-turn")
    turn.chmod(0o604)
    path.chmod(0o644)

    [rights] = [check for check in live.doctor() if check.name == "rights"]
    assert (rights.verdict, f"a lock on {turn}" in rights.message) == ("warning", True)
    assert rights.advice.startswith(f"run `chmod o-rwx {path}")
    assert rights.advice.endswith(f" {turn}`")

    path.chmod(0o666)  # then all are meant to write
    [rights] = [check for check in live.doctor() if check.name == "rights"]
    assert str(turn) not in rights.message


@pytest.mark.parametrize(("mode", "turn"), [(0o600, 0o640), (0o644, 0o644), (0o666, 0o646)])
def test_a_lock_of_before_is_closed_to_others_where_the_database_is(live, path, mode, turn):
    """Older versions made it readable by all."""
    sqlite3.connect(path).execute("create table theirs (a)").connection.close()
    path.chmod(mode)
    lock = Path(f"{path}-turn")
    lock.touch()
    lock.chmod(turn | 0o004)

    live.jobs.enqueue("mail")

    assert lock.stat().st_mode & 0o777 == turn


# ---------------------------------------------------------------- deleted or replaced


def payloads(path: Path) -> set[object]:
    """What is stored in a file, which is whole."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    with App(f"sqlite:///{path}") as app:
        return {job.payload for job in app.jobs.list(limit=1_000)}


def test_a_deleted_file_is_told_and_not_made_again(live, path):
    live.jobs.enqueue("mail")
    path.unlink()

    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match=r"test\.db was deleted while in use.*backup"):
            live.jobs.enqueue("mail")
        with pytest.raises(DatabaseUnavailable, match="deleted while in use"):
            live.jobs.list()
    assert not path.exists()
    [check] = live.doctor()
    assert (check.name, check.verdict) == ("database", "problem")
    assert "deleted while in use" in check.message


def test_readers_notice_a_deleted_file_too(live, path):
    job = live.jobs.enqueue("mail")
    live.jobs.get(job)
    path.unlink()

    def refused():
        with contextlib.suppress(NotFound):
            live.jobs.get(job)

    with pytest.raises(DatabaseUnavailable, match="deleted while in use"):
        eventually(refused)


def test_work_goes_on_with_a_file_that_is_put_back(live, path, tmp_path):
    live.jobs.enqueue("mail", 1)
    path.rename(tmp_path / "away.db")
    with pytest.raises(DatabaseUnavailable, match="deleted"):
        live.jobs.enqueue("mail", 2)

    (tmp_path / "away.db").rename(path)
    live.jobs.enqueue("mail", 3)

    # The refused call had gone to this very file.
    assert sorted(job.payload for job in live.jobs.list()) == [1, 2, 3]


def test_a_file_that_was_moved_away_is_whole_without_its_log(live, path, tmp_path):
    live.jobs.enqueue_many("mail", range(100))
    path.rename(tmp_path / "away.db")
    with pytest.raises(DatabaseUnavailable):
        live.jobs.enqueue("mail", 100)
    with pytest.raises(DatabaseUnavailable):
        live.jobs.list()

    assert payloads(tmp_path / "away.db") == set(range(101))


def test_a_restored_backup_is_used_by_all_who_had_the_old_file_open(
    make_app, colour, path, tmp_path
):
    """Each app as if in a process of its own."""
    apps = [colour(make_app()) for _ in range(3)]
    apps[0].jobs.enqueue("mail", "kept")
    apps[0].backup(tmp_path / "backup.db")
    for app in apps:
        app.jobs.enqueue_many("mail", ["too late for the backup"] * 100)
        app.jobs.list()
    (tmp_path / "backup.db").replace(path)

    for number, app in enumerate(apps):
        with pytest.raises(DatabaseUnavailable, match=r"test\.db was replaced while in use"):
            app.jobs.enqueue("mail", "refused")
        app.jobs.enqueue("mail", number)
        assert len(app.jobs.list()) == number + 2
    for app in apps:
        app.close()
    assert payloads(path) == {"kept", 0, 1, 2}


def test_no_call_that_begins_after_a_restore_is_lost(make_app, path, tmp_path):
    app = make_app()
    app.jobs.enqueue("mail", "kept")
    app.backup(tmp_path / "backup.db")

    def enqueue(number):
        with contextlib.suppress(DatabaseUnavailable):
            return app.jobs.enqueue("mail", number).payload

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(enqueue, range(100)))
        (tmp_path / "backup.db").replace(path)
        stored = {*threads.map(enqueue, range(100, 300))} - {None}

    app.close()
    assert len(stored) > 100
    assert payloads(path) == {"kept", *stored}


def test_a_process_that_ends_leaves_a_restored_backup_whole(make_app, path, tmp_path):
    """SQLite would take the log of the old file for that of the new one."""
    app = make_app()
    app.jobs.enqueue("mail", "kept")
    app.backup(tmp_path / "backup.db")
    app.jobs.enqueue_many("mail", ["too late for the backup"] * 100)
    (tmp_path / "backup.db").replace(path)
    app.close()

    assert not Path(f"{path}-wal").exists()
    assert payloads(path) == {"kept"}


@pytest.mark.parametrize("just_before", [(sqlite, "_create"), (sqlite3, "connect")])
def test_a_file_that_is_replaced_while_it_is_opened_is_left_whole(
    make_app, path, tmp_path, monkeypatch, just_before
):
    """SQLite must not look at the log, which is still that of the file before."""
    app = make_app()
    app.jobs.enqueue("mail", "kept")
    app.backup(tmp_path / "backup.db")
    app.jobs.enqueue_many("mail", ["too late for the backup"] * 100)
    go_on = getattr(*just_before)

    def replace_and_go_on(*args, **kwargs):
        monkeypatch.undo()
        (tmp_path / "backup.db").replace(path)
        return go_on(*args, **kwargs)

    monkeypatch.setattr(*just_before, replace_and_go_on)
    with pytest.raises(DatabaseUnavailable, match="replaced"):
        app.backup(tmp_path / "second.db")

    app.jobs.enqueue("mail", "new")
    app.close()
    assert payloads(path) == {"kept", "new"}


def test_a_process_that_looks_at_a_restored_backup_does_not_stop_itself(make_app, path, tmp_path):
    """A descriptor is no connection: only one that has read the file may have taken its log."""
    app = make_app()
    app.migrate()
    app.backup(tmp_path / "backup.db")
    app.jobs.enqueue("mail", "too late for the backup")
    (tmp_path / "backup.db").replace(path)
    with path.open():
        with pytest.raises(DatabaseUnavailable, match="try again"):
            app.jobs.enqueue("mail", "refused")

        app.jobs.enqueue("mail", "new")
        app.close()  # before the descriptor, which would take its locks away
    assert payloads(path) == {"new"}


def test_tables_are_made_in_a_file_that_has_none(live, path, tmp_path):
    live.jobs.enqueue("mail", "old")
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("create table theirs (a)")
    (tmp_path / "other.db").replace(path)
    with pytest.raises(DatabaseUnavailable, match="replaced"):
        live.jobs.enqueue("mail", "refused")

    live.jobs.enqueue("mail", "new")

    assert payloads(path) == {"new"}


def test_a_caller_that_waits_for_a_job_hears_of_one_in_a_restored_backup(make_app, path, tmp_path):
    app, other = make_app(), make_app()
    other.migrate()
    app.backup(tmp_path / "backup.db")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(reserve, app)
        eventually(lambda: app.jobs.stats_waiting() == {"mail": 1})
        (tmp_path / "backup.db").replace(path)
        with pytest.raises(DatabaseUnavailable):
            other.jobs.enqueue("mail", "refused")
        other.jobs.enqueue("mail", "new")

        assert waiting.result(20) == "new"


def reserve(app):
    while True:
        with contextlib.suppress(DatabaseUnavailable):
            for lease in app.jobs.reserve("mail", timeout=20):
                return lease.job.payload


def test_the_working_directory_may_change(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    with App("sqlite:///test.db") as app:
        app.jobs.enqueue("mail", "here")
        monkeypatch.chdir("/")

        app.jobs.enqueue("mail", "there")
        assert len(app.jobs.list()) == 2
    assert payloads(path) == {"here", "there"}


def test_a_lock_file_that_cannot_be_opened_is_told_as_an_error_of_the_database(
    live, path, tmp_path
):
    live.jobs.enqueue("mail")
    live.backup(tmp_path / "backup.db")
    (tmp_path / "backup.db").replace(path)
    turn = Path(f"{path}-turn")
    turn.unlink()
    turn.mkdir()
    with pytest.raises(DatabaseUnavailable, match="replaced"):
        live.jobs.enqueue("mail")

    with pytest.raises(DatabaseUnavailable, match=r"test\.db-turn"):
        live.jobs.enqueue("mail")

    turn.rmdir()
    live.jobs.enqueue("mail")
