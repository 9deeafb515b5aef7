"""A backup: the SQLite file as it was at one instant, while everybody goes on."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from towpath import App
from towpath.errors import Invalid, SchemaMissing


@pytest.fixture
def app(tmp_path):
    with App(f"sqlite:///{tmp_path}/app.db") as app:
        app.migrate()
        yield app


def test_a_backup_is_the_whole_database_at_one_instant(app, colour, tmp_path):
    with sqlite3.connect(tmp_path / "app.db") as db:
        db.execute("create table mine (job integer)")
    [*jobs] = app.jobs.enqueue_many("mail", range(3))
    [lease] = app.jobs.reserve("mail")

    colour(app).backup(tmp_path / "copy.db")
    app.jobs.complete(lease)

    with App(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert [copy.jobs.get(job.id).state for job in jobs] == ["reserved", "ready", "ready"]
        copy.jobs.complete(lease)  # it holds there as well
        assert copy.jobs.stats().completed == 1
    with sqlite3.connect(tmp_path / "copy.db") as db:
        assert db.execute("select count(*) from mine").fetchone() == (0,)


def test_what_was_stored_before_a_backup_began_is_in_it_while_others_write(app, tmp_path):
    stop, stored = Event(), list[int]()

    def write():
        while not stop.is_set():
            stored.append(app.jobs.enqueue("mail", len(stored)).seq)

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        for number in range(5):
            before = len(stored)
            app.backup(tmp_path / f"{number}.db")
            after = len(stored)
            with App(f"sqlite:///{tmp_path}/{number}.db") as copy:
                assert before <= copy.jobs.stats().ready <= after + 1
        stop.set()
        writing.result()


def test_a_file_that_is_there_is_not_replaced(app, tmp_path):
    (tmp_path / "copy.db").write_text("mine")

    with pytest.raises(Invalid, match="already"):
        app.backup(tmp_path / "copy.db")

    assert (tmp_path / "copy.db").read_text() == "mine"


def test_a_backup_that_cannot_be_written_leaves_nothing_behind(app, tmp_path):
    before = sorted(tmp_path.iterdir())

    with pytest.raises(Invalid, match=r"nowhere.*No such file"):
        app.backup(tmp_path / "nowhere" / "copy.db")

    assert sorted(tmp_path.iterdir()) == before


def test_what_is_not_there_is_not_made_by_a_backup(tmp_path):
    with App(f"sqlite:///{tmp_path}/none.db") as app, pytest.raises(SchemaMissing, match="no file"):
        app.backup(tmp_path / "copy.db")

    assert list(tmp_path.iterdir()) == []


def test_of_two_backups_to_one_file_one_is_there_and_whole(app, tmp_path):
    app.jobs.enqueue_many("mail", ["x" * 1_000] * 1_000)

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(app.backup, tmp_path / "copy.db") for _ in range(2)]
        said = [each.exception() for each in both]

    assert sorted(map(type, said), key=str) == [type(None), Invalid]
    with App(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert copy.jobs.stats().ready == 1_000
    assert [path.name for path in tmp_path.glob("copy*") if not path.name.endswith("-turn")] == [
        "copy.db"
    ]


def test_a_copy_can_be_read_by_whom_the_file_could_be(app, tmp_path):
    (tmp_path / "app.db").chmod(0o600)

    app.backup(tmp_path / "copy.db")

    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_what_is_no_file_is_backed_up_by_other_means(make_app, tmp_path, kind):
    with pytest.raises(Invalid, match="not a SQLite file"):
        make_app().backup(tmp_path / "copy.db")
