"""A SQLite file that is deleted or replaced under processes: no acknowledged job is lost."""

import pytest

from towpath.errors import DatabaseUnavailable


@pytest.fixture
def kind():
    return "sqlite"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "test.db"


def test_processes_go_on_with_a_restored_backup(make_app, start, path, tmp_path, books):
    app = make_app()
    app.jobs.enqueue("mail", "kept")
    app.backup(tmp_path / "backup.db")
    programs = [start("enqueue_when_told") for _ in range(2)]
    for program in programs:
        program.say("lost")
        assert program.hear() == "lost"

    (tmp_path / "backup.db").replace(path)
    for program in programs:
        program.say("refused")
        assert program.hear() == "database_unavailable"
        program.say("stored")
        assert program.hear() == "stored"
    for program in programs:
        program.end()  # by SIGKILL, so it closes nothing: its log is all there is

    app.close()
    after = make_app()
    assert sorted(job.payload for job in after.jobs.list()) == ["kept", "stored", "stored"]
    books.check()


def test_no_job_is_acknowledged_that_went_to_a_deleted_file(make_app, start, path):
    make_app().migrate()
    program = start("enqueue_when_told")
    program.say("stored")
    assert program.hear() == "stored"

    path.unlink()
    for _ in range(3):
        program.say("lost")
        assert program.hear() == "database_unavailable"
    assert not path.exists()


def test_the_log_of_a_process_that_opened_the_new_file_first_is_left_alone(
    make_app, start, path, tmp_path
):
    """SQLite gave it the log of the old file. What it was acknowledged is in that log alone."""
    app = make_app()
    app.jobs.enqueue("mail", "kept")
    app.backup(tmp_path / "backup.db")
    app.jobs.enqueue("mail", "in the log")
    (tmp_path / "backup.db").replace(path)
    program = start("enqueue_when_told")
    program.say("stored")
    assert program.hear() == "stored"

    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match="was replaced while in use"):
            app.jobs.enqueue("mail", "refused")
    with pytest.raises(DatabaseUnavailable, match="another process has opened it"):
        app.jobs.enqueue("mail", "refused")
    program.end()  # by SIGKILL, so it closes nothing
    app.close()

    assert "stored" in [job.payload for job in make_app().jobs.list()]
