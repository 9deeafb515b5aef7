"""A backup whose process is killed: there is a whole copy or none."""

import pytest

from towpath import App


@pytest.fixture
def kind():
    return "sqlite"


def test_a_killed_backup_leaves_no_copy_and_the_next_one_removes_its_half(
    start, make_app, tmp_path
):
    app = make_app()
    app.jobs.enqueue_many("mail", range(100))
    directory = tmp_path / "backups"
    directory.mkdir()
    program = start("stop_in_backup", target=str(directory / "copy.db"))
    assert program.hear() == "in the middle"

    app.backup(directory / "other.db")  # which leaves alone what another process is about to finish
    assert len(list(directory.iterdir())) == 2
    program.end()
    assert not list(directory.glob("copy*"))
    app.backup(directory / "copy.db")

    assert sorted(path.name for path in directory.iterdir()) == ["copy.db", "other.db"]
    with App(f"sqlite:///{directory}/copy.db") as copy:
        assert copy.jobs.stats().ready == 100
