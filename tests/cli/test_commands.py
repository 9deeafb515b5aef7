"""What the commands say and do, on a file and on a server."""

import json
import re
import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import Towpath
from tests.conftest import eventually
from tests.workers import ended, working
from towpath import Backoff, Context, Job, State, Status
from towpath.app import outcomes
from towpath.cli.main import COMMANDS, parser
from towpath.cli.topics import COLUMNS
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store.leases import settle

EVIL = "\x1b[31mred\x07 \x9b1m [bold]no[/bold] \u202e :smile:"


def buried(app, topic="mail", payload=None):
    """Have a job fail for good."""
    job = app.jobs.enqueue(topic, payload, priority=0, max_retries=1)
    [lease] = app.jobs.reserve(topic)
    app.jobs.fail(lease, ValueError("no ink"))
    return job


def lines(done):
    return [line.split() for line in done.stdout.splitlines()]


# ------------------------------------------------------------ jobs


def test_jobs_are_listed_newest_first_and_filtered(app, towpath):
    """US7-3"""
    first = app.jobs.enqueue("mail", {"to": "ada"}, key="a")
    app.jobs.enqueue("post", {"to": "bob"})
    failed = buried(app)

    assert [line[:3] for line in lines(towpath("jobs", "list"))] == [
        ["seq", "topic", "state"],
        [str(failed.seq), "mail", "buried"],
        [str(first.seq + 1), "post", "ready"],
        [str(first.seq), "mail", "ready"],
    ]
    for filters, expected in (
        (["--topic", "post"], ["post"]),
        (["--status", "failed"], ["mail"]),
        (["--status", "buried"], ["mail"]),
        (["--key", "a"], ["mail"]),
        (["--text", "bob"], ["post"]),
        (["--error", "no ink"], ["mail"]),
        (["--since", "1h", "--topic", "post"], ["post"]),
        (["--since", "2125-01-31T12:00:00Z"], []),
        (["--until", "1h"], []),
    ):
        found = towpath.json("jobs", "list", *filters)["jobs"]
        assert [job["topic"] for job in found] == expected
    assert "ValueError: no ink" in towpath("jobs", "list", "--status", "failed").stdout
    app.jobs.reserve("post", worker="web-1")
    [job] = towpath.json("jobs", "list", "--worker", "web-1")["jobs"]
    assert job["topic"] == "post"
    for bad in ("soon", "0001-01-01T00:00+05:00"):
        assert f"'{bad}' is no instant" in towpath("jobs", "list", "--since", bad, code=2).stderr


def test_a_list_goes_on_after_its_last_job(app, towpath):
    jobs = app.jobs.enqueue_many("mail", range(5))
    seen, after = [], []
    for _ in range(3):
        page = towpath.json("jobs", "list", "--limit", 2, *after)
        seen += [job["payload"] for job in page["jobs"]]
        after = ["--after", page["after"]]

    assert seen == [4, 3, 2, 1, 0]
    assert page["after"] is None
    by_id = towpath.json("jobs", "list", "--after", jobs[1].id)
    assert [job["payload"] for job in by_id["jobs"]] == [0]
    app.jobs.reschedule(jobs[4], priority=1)
    for order, state, expected in (
        ("oldest", [], [0, 1, 2, 3, 4]),
        ("next", ["--status", "ready"], [4, 0, 1, 2, 3]),
    ):
        asked = ("jobs", "list", "--order", order, *state, "--limit", 2)
        first = towpath.json(*asked)
        second = towpath.json(*asked, "--after", first["after"])
        found = [job["payload"] for job in first["jobs"] + second["jobs"]]
        assert found == expected[:4]


def test_a_job_is_shown_in_full_by_its_id_or_its_number(app, towpath):
    job = buried(app, payload={"to": "ada"})

    for name in (job.id, job.seq):
        shown = towpath("jobs", "show", name).stdout
        assert str(job.id) in shown
        assert '"to": "ada"' in shown
        assert "error in run 1" in shown
        assert "epoch" not in shown
        assert "ValueError: no ink" in shown


def test_a_job_is_shown_with_its_task_if_the_topic_has_another_name(app, towpath):
    app.jobs.enqueue("documents", task="make_invoice")
    app.jobs.enqueue("mail")

    mail, invoice = towpath("jobs", "list").stdout.splitlines()[1:]
    assert "documents (make_invoice)" in invoice
    assert "(" not in mail
    assert [job["task"] for job in towpath.json("jobs", "list")["jobs"]] == [None, "make_invoice"]
    assert ["task", "make_invoice"] in lines(towpath("jobs", "show", 1))
    assert "task" not in towpath("jobs", "show", 2).stdout


def test_a_number_of_jobs_agrees_with_its_sentence(app, towpath):
    app.jobs.enqueue_many("mail", range(4), delay=60)

    for number in (1, 2):
        said = "1 job of mail is" if number == 1 else "2 jobs of mail are"
        kicked = towpath("jobs", "kick", "--topic", "mail", "--limit", number)
        assert kicked.stdout == f"{said} ready\n"
    finished(app)
    assert towpath("jobs", "forget", "--all", "--yes").stdout == "1 job is forgotten\n"
    app.jobs.purge("mail")
    app.jobs.enqueue("mail")
    assert towpath("topics", "purge", "mail", "--yes").stdout == "1 job of mail is deleted\n"


@pytest.mark.parametrize("verb", ["requeue", "cancel", "delete"])
def test_a_verb_for_all_jobs_says_if_none_matches(app, towpath, verb):
    app.migrate()
    words = ("jobs", verb, "--all", "--topic", "mail", "--yes")

    assert towpath(*words).stdout == "no job matches\n"
    assert towpath.json(*words) == {"jobs": []}


def test_a_job_that_no_worker_can_run_says_what_it_waits_for(app, towpath):
    job = app.jobs.enqueue("slow")
    app.jobs.release(app.jobs.reserve("slow")[0])
    [lease] = app.jobs.reserve("slow")
    app.run(settle([outcomes.not_yet(lease, "UnknownTask: no task 'crop' here", 5)]))
    said = "it fails an hour after that: UnknownTask: no task 'crop' here"
    shown = towpath("jobs", "show", job.seq).stdout
    assert "waits        for a worker that can run it, since 20" in shown
    assert said in shown
    assert "\nunknown at 20" in shown

    app.jobs.kick("slow")
    app.jobs.fail(app.jobs.reserve("slow")[0], "no")
    shown = towpath("jobs", "show", job.seq).stdout
    assert said not in shown
    assert "error in run 1 at" in shown


def test_one_document_has_the_names_of_the_design(app, towpath):
    """Instants are ISO 8601 with a Z, durations are seconds."""
    job = buried(app, payload={"n": 1})
    [found] = towpath.json("jobs", "show", job.id)["jobs"]

    assert found["id"] == str(job.id)
    assert (found["status"], found["state"], found["retries"]) == ("failed", "buried", 1)
    assert (found["payload"], found["ttr"], found["result"]) == ({"n": 1}, 300.0, None)
    assert found["options"]["max_retries"] == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", found["created_at"])
    [failure] = found["failures"]
    assert (failure["kind"], failure["error"]) == ("error", "ValueError: no ink")


def test_the_document_of_a_job_has_every_field_of_a_job(app, towpath):
    job = buried(app, payload={"n": 1})
    [found] = towpath.json("jobs", "show", job.id)["jobs"]

    names = {"body": "payload", "result_body": "result"}
    assert {names.get(field, field) for field in Job.__struct_fields__} <= set(found)


def test_raw_bytes_and_results_are_shown_too(app, towpath):
    app.queue("raw").put(b"\x00\xff")
    app.jobs.enqueue("mail")
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease, {"sent": True})

    mail, raw = towpath.json("jobs", "list")["jobs"]
    assert (raw["encoding"], raw["payload"]) == ("base64", "AP8=")
    assert mail["result"] == {"sent": True}
    assert '"sent": true' in towpath("jobs", "show", lease.job.id).stdout


def test_bytes_that_are_text_can_be_read_and_searched(app, towpath):
    app.queue("raw").put(b'{"order": 7, "password": "hunter2"}')
    app.queue("raw").put(b"plain \x1b[31m words")
    app.queue("raw").put(b"\x00\xff")

    shown = towpath("jobs", "list").stdout
    assert '"order": 7' in shown
    assert "hunter2" not in shown
    assert "plain \\x1b[31m words" in shown
    assert "2 bytes, in base64: AP8=" in shown
    [found] = towpath.json("jobs", "list", "--text", "words")["jobs"]
    assert (found["encoding"], found["payload"]) == ("text", "plain \x1b[31m words")


def test_a_job_that_only_a_newer_version_can_read_is_listed(app, towpath):
    app.jobs.enqueue("mail", 1)
    app.run(Operation("spoil", spoil))

    [found] = towpath.json("jobs", "list")["jobs"]
    assert "cannot read" in found["unreadable"]
    assert "payload" not in found
    assert "cannot read" in towpath("jobs", "list").stdout


def spoil():
    """Encode the bodies in a way of the future."""
    yield Statement("spoil", {"any": "update towpath.job set encoding = 'runes'"})()


def test_one_job_that_is_not_there_does_not_hide_the_others(app, towpath):
    job = app.jobs.enqueue("mail", "hello")
    done = towpath("jobs", "show", 999, job.seq, code=1)

    assert "hello" in done.stdout
    assert done.stderr == "towpath: there is no job 999\n"


def test_failed_jobs_are_requeued_cancelled_and_deleted_by_name(app, towpath):
    """US7-4"""
    jobs = [buried(app) for _ in range(3)]
    requeued = towpath("jobs", "requeue", jobs[0].id, jobs[1].seq)
    assert requeued.stdout.count("is ready") == 2
    assert towpath("jobs", "cancel", jobs[1].seq).stdout.endswith("is cancelled\n")
    refused = towpath("jobs", "delete", jobs[2].seq, jobs[2].seq, code=1)
    assert refused.stdout.endswith("is deleted\n")
    assert refused.stderr.startswith("towpath: there is no job")

    assert [job.state for job in app.jobs.list()] == ["cancelled", "ready"]


def test_a_running_job_is_asked_to_stop(app, towpath):
    job = app.jobs.enqueue("mail")
    app.jobs.reserve("mail")

    assert towpath("jobs", "cancel", job.id).stdout.endswith("is asked to stop\n")


def test_all_that_the_filters_choose_is_acted_on(app, towpath):
    for topic in ("mail", "mail", "post"):
        buried(app, topic)
    done = towpath.json("jobs", "requeue", "--all", "--topic", "mail", "--yes")

    assert [job["state"] for job in done["jobs"]] == ["ready", "ready"]
    assert app.jobs.stats().buried == 1


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "delete", "--all"],
        ["jobs", "delete", "--all", "--topic", "mail"],
        ["topics", "purge", "mail"],
    ],
)
def test_what_cannot_be_undone_is_refused_where_nobody_can_be_asked(app, towpath, words):
    buried(app)
    assert "--yes" in towpath(*words, code=2).stderr
    assert app.jobs.stats().buried == 1

    towpath(*words, "--yes")
    assert app.jobs.stats().buried == 0


def finished(app, topic="mail", payload=None):
    """Complete a job."""
    job = app.jobs.enqueue(topic, payload)
    app.jobs.complete(app.jobs.reserve(topic)[0])
    return job


def test_finished_jobs_are_forgotten_by_name_and_others_are_not(app, towpath):
    job, waiting = finished(app), app.jobs.enqueue("mail")
    done = towpath("jobs", "forget", job.seq, waiting.id, code=1)

    assert done.stdout == f"job {job.seq} ({job.id}) is forgotten\n"
    assert "is pending, and only a finished job is forgotten" in done.stderr
    assert [each.id for each in app.jobs.list()] == [waiting.id]


def test_finished_jobs_are_forgotten_by_filter(app, towpath):
    for topic, payload in (("mail", "a"), ("mail", "b"), ("post", "a")):
        finished(app, topic, payload)
    waiting = app.jobs.enqueue("mail", "b")
    words = ["jobs", "forget", "--all", "--topic", "mail", "--text", "b"]
    assert "forget every finished job with topic mail, text b" in towpath(*words, code=2).stderr
    assert len(app.jobs.list()) == 4
    assert (
        "only completed and cancelled"
        in towpath("jobs", "forget", "--all", "--status", "failed", "--yes", code=1).stderr
    )

    assert towpath.json(*words, "--yes") == {"forgotten": 1}
    done = towpath("jobs", "forget", "--all", "--older-than", "1h", "--yes")
    assert (done.stdout, done.stderr) == ("0 jobs are forgotten\n", "")
    assert towpath("jobs", "forget", "--all", "--yes").stdout == "2 jobs are forgotten\n"
    assert [each.id for each in app.jobs.list()] == [waiting.id]


def test_a_terminal_shows_how_many_jobs_are_forgotten_so_far(app, towpath):
    finished(app)
    code, shown = towpath.in_terminal("jobs", "forget", "--all", "--yes")

    assert code == 0
    assert "\x1b[?25l" in shown  # a bar is drawn
    assert "1 job is forgotten" in shown


@pytest.mark.parametrize(("typed", "left"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_a_terminal_is_asked(app, towpath, typed, left):
    app.jobs.enqueue("mail")
    code, shown = towpath.in_terminal("topics", "purge", "mail", typed=typed)

    assert "delete the pending and failed jobs of mail? [y/N]" in shown
    assert (code, app.jobs.stats().ready) == (left, left)


@pytest.mark.parametrize(
    "words", [[], ["1", "--all"], ["1", "--topic", "mail"], ["--topic", "mail"]]
)
def test_jobs_are_named_or_chosen_but_not_both(app, towpath, words):
    assert "give the jobs to delete" in towpath("jobs", "delete", *words, code=2).stderr


def test_jobs_are_kicked_by_topic_or_by_name(app, towpath):
    """DQ-5"""
    jobs = [buried(app) for _ in range(4)]
    assert towpath("jobs", "kick", jobs[3].id).stdout.endswith("is ready\n")
    assert towpath.json("jobs", "kick", "--topic", "mail", "--limit", 2)["kicked"] == 2

    assert [job.state for job in app.jobs.list()] == ["ready", "buried", "ready", "ready"]
    assert towpath("jobs", "reschedule", jobs[3].id, "--delay", "15m").stdout.endswith("delayed\n")
    assert (
        towpath.json("jobs", "reschedule", jobs[3].seq, "--priority", 1)["jobs"][0]["priority"] == 1
    )
    assert (
        "give --delay, --priority or both"
        in towpath("jobs", "reschedule", jobs[3].id, code=2).stderr
    )
    assert "give the jobs to kick, or --topic" in towpath("jobs", "kick", code=2).stderr


def test_a_job_is_enqueued_from_words_or_from_stdin(app, towpath):
    options = ["--delay", "15m", "--priority", 7, "--key", "k", "--max-retries", 9]
    towpath("jobs", "enqueue", "mail", '{"n": 12345678901234567890}', *options)
    towpath("jobs", "enqueue", "mail", "-", said='["piped"]')
    towpath("jobs", "enqueue", "mail")

    empty, piped, first = app.jobs.list()
    assert (empty.payload, piped.payload) == (None, ["piped"])
    assert first.body == '{"n": 12345678901234567890}'
    assert (first.state, first.priority, first.key) == ("delayed", 7, "k")
    assert first.options.max_retries == 9
    assert "not JSON" in towpath("jobs", "enqueue", "mail", "{", code=1).stderr


SHOP = """
from towpath import App

app = App("sqlite:///shop.db")

@app.task(topic="mail", priority=3, max_retries=9)
def send(to: str, urgent: bool = False) -> None: ...
"""


def test_an_enqueue_with_an_app_is_checked_by_the_task_and_has_its_options(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    enqueue = ["jobs", "enqueue", "--app", "shop:app", "--json"]
    towpath = Towpath(tmp_path)
    for wrong in (["mail"], ["mail", '{"to": "ada", "cc": "bob"}']):
        refused = json.loads(towpath.process(*enqueue, *wrong, code=1).stderr)
        assert refused["code"] == "invalid_arguments"

    done = towpath.process(*enqueue, "mail", '{"to": "ada"}', "--max-retries", 2)
    [job] = json.loads(done.stdout)["jobs"]
    assert (job["payload"], job["priority"]) == ({"to": "ada"}, 3)
    assert job["options"]["max_retries"] == 2
    towpath.process(*enqueue, "another", "5")  # a topic without a task takes anything

    setting = ["schedules", "set", "daily", "--topic", "mail", "--every", "1d", "--app", "shop"]
    refused = towpath.process(*setting, code=1).stderr
    assert "send cannot be called with these arguments" in refused
    towpath.process(*setting, "--payload", '{"to": "ada"}')


# ------------------------------------------------------------ topics, stats, workers


def test_topics_are_listed_paused_resumed_and_purged(app, towpath):
    """DQ-7"""
    app.jobs.enqueue_many("mail", range(3))
    app.jobs.enqueue("post", delay=60)
    towpath("topics", "pause", "mail", "post", "--for", "15m")
    mail, post = towpath.json("topics")["topics"]
    assert (mail["topic"], mail["ready"], mail["paused"]) == ("mail", 3, True)
    assert (post["delayed"], post["oldest_at"]) == (1, None)
    assert mail["oldest_at"].endswith("Z")
    assert lines(towpath("topics"))[1][-1] == "paused"

    towpath("topics", "resume", "mail", "post")
    assert towpath.json("topics", "list")["topics"][0]["paused"] is False
    [purged] = towpath.json("topics", "purge", "mail", "--yes")["topics"]
    assert purged == {"topic": "mail", "purged": 3}
    for wrong in (["pause"], ["list", "mail"], ["resume", "mail", "--for", "1m"]):
        towpath("topics", *wrong, code=2)


def test_statistics_are_counted(app, towpath):
    """US10-1"""
    buried(app)
    app.jobs.enqueue_many("mail", range(1_200))
    [lease] = app.jobs.reserve("mail")
    app.jobs.complete(lease)

    found = towpath.json("stats")
    assert (found["ready"], found["buried"], found["completed"]) == (1_199, 1, 1)
    assert found["success_rate"] == 0.5
    assert [topic["topic"] for topic in found["topics"]] == ["mail"]
    assert "1,199" in towpath("stats").stdout


def test_statistics_are_watched_until_ctrl_c(app, towpath):
    with towpath.start("stats", "--watch", "--json") as watching:
        assert json.loads(watching.stdout.readline())["ready"] == 0
        app.jobs.enqueue("mail")
        while json.loads(watching.stdout.readline())["ready"] != 1:
            pass
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
        assert watching.wait(20) == 0
        assert watching.stderr.read() == ""


def test_a_terminal_shows_statistics_live_and_is_itself_again_at_the_end(app, towpath):
    app.jobs.enqueue("letters")
    code, shown = towpath.in_terminal("stats", "--watch", interrupt_at="letters")

    assert code == 0
    assert "\x1b[?25l" in shown  # the cursor is hidden,
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # and comes back
    assert "Traceback" not in shown


def test_workers_are_listed_with_what_they_serve_and_hold(app, towpath):
    app.jobs.enqueue("mail")
    session = app.sessions.start("vm:1", ["mail", "post"])
    app.jobs.reserve("mail", session=session)
    app.sessions.hear("phone", ["post"])  # as a worker over HTTP is heard

    found, remote = towpath.json("workers")["workers"]
    assert (found["worker"], found["topics"], found["leases"]) == ("vm:1", ["mail", "post"], 1)
    assert (found["session"], found["live"]) == (str(session), True)
    assert (remote["worker"], remote["session"], remote["live"]) == ("phone", None, True)
    shown = lines(towpath("workers"))
    assert shown[1][-3:] == ["live", "mail,", "post"]
    assert (shown[2][0], shown[2][-2:]) == ("phone", ["live", "post"])


def test_the_doctor_ends_with_1_where_there_is_a_problem(app, towpath):
    app.jobs.enqueue("mail")
    assert towpath.json("doctor")["healthy"] is True
    eventually(lambda: "problem" in {check.verdict for check in app.doctor(0.01)})

    found = towpath.json("doctor", "--patience", 0.01, code=1)
    assert found["healthy"] is False
    [told] = [check for check in found["checks"] if check["verdict"] == "problem"]
    assert told["name"] == "workers"
    shown = towpath("doctor", "--patience", "10ms", code=1).stdout
    assert "no worker serves mail" in shown
    assert "→ start a worker" in shown


# ------------------------------------------------------------ what it says, and where


def test_the_program_answers_as_a_process(app, towpath):
    """What the other tests see in their own process is what a shell sees."""
    app.jobs.enqueue("mail", "ä", key="k")
    for words in (["jobs", "list", "--key", "k"], ["topics"], ["workers"]):
        assert towpath.process(*words, "--json") == towpath(*words, "--json")
    here, there = json.loads(towpath.process("stats", "--json").stdout), towpath.json("stats")
    assert here.pop("at") <= there.pop("at")
    assert here == there
    assert towpath.process("jobs", "enqueue", "mail", "-", said="1").stdout.endswith("is ready\n")
    for words, code in ((["jobs", "show", "9"], 1), (["jobs"], 2), (["stats", "--what"], 2)):
        done = towpath.process(*words, code=code)
        assert done.stdout == ""
        assert done.stderr.startswith("towpath: ")


def test_every_command_is_named_in_the_help_and_has_examples(tmp_path):
    towpath = Towpath(tmp_path)
    shown = towpath("--help").stdout
    for name, summary in COMMANDS.items():
        assert re.search(rf"^ +{name}\b", shown, re.MULTILINE)
        assert summary in shown
        assert "examples:" in towpath(name, "--help").stdout
    assert re.fullmatch(r"towpath \d+\.\d+.*\n", towpath("--version").stdout)


def parsers(name):
    """The parser of a command, and those of its verbs."""
    [commands] = [each for each in parser([name])._actions if each.dest == "command"]
    found = commands.choices[name]
    verbs = [each.choices for each in found._actions if isinstance(each.choices, dict)]
    return [found, *(verbs[0].values() if verbs else ())]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_what_each_value_is_and_shows_each_verb(name):
    for each in parsers(name):
        shown = each.format_help()
        assert each.description
        assert "examples:" in shown
        for action in each._actions:
            what = action.dest, each.prog
            assert action.help or action.dest == "verb", what
            takes_value = action.nargs != 0 and not isinstance(action.choices, dict)
            assert not takes_value or action.metavar or action.choices, what
            if action.dest == "verb":
                default = {"list", "show"} - ({"show"} if name in {"jobs", "users"} else set())
                for verb in set(action.choices) - default:
                    assert f"towpath {name} {verb} " in shown


def test_an_unknown_option_of_a_command_is_answered_with_the_nearest(tmp_path):
    towpath = Towpath(tmp_path)
    for words, told in (
        (["worker", "shop:app", "--queues", "mail"], "unknown option --queues (use `topics`)"),
        (["worker", "--concurency=3"], "--concurency (did you mean `concurrency`?) (see towpath w"),
        (["jobs", "enqueue", "mail", "--countdown", "5"], "--countdown (use `delay`) (see towpath"),
        (["stats", "--wrong"], "unknown option --wrong (see towpath stats --help)"),
    ):
        assert told in towpath(*words, code=2).stderr
    assert "unrecognized arguments: more" in towpath("stats", "more", code=2).stderr


def test_nothing_heavy_is_imported_before_it_is_needed(tmp_path):
    program = """if True:
        import contextlib, sys
        from towpath.cli.main import main
        with contextlib.suppress(SystemExit):
            main(sys.argv[1:])
        print([name for name in ("rich", "psycopg", "towpath.worker") if name in sys.modules])
    """
    for words in (["--help"], ["jobs", "list", "--json"]):
        command = [sys.executable, "-c", program, *words]
        environment = Towpath(tmp_path).environment
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, check=True
        )
        assert done.stdout.splitlines()[-1] == b"[]"


def test_an_error_is_one_line_on_stderr_or_json(towpath, app):
    done = towpath("topics", "resume", "nope", code=1)
    assert (done.stdout, done.stderr) == ("", "towpath: there is no topic 'nope'\n")

    done = towpath("topics", "resume", "nope", "--json", code=1)
    assert done.stdout == ""
    expected = {"code": "not_found", "message": "there is no topic 'nope'"}
    assert json.loads(done.stderr) == expected
    done = towpath("jobs", "list", "--status", "great", "--json", code=2)
    assert json.loads(done.stderr)["code"] == "usage"
    assert all(status in done.stderr for status in (*Status, *State))
    assert "Status." not in done.stderr


@pytest.mark.parametrize(
    "url",
    ["postgresql://ada:hunter2@127.0.0.1:1/none?connect_timeout=1", "sqlite:////none/x.db", "what"],
)
def test_a_database_that_cannot_be_had_is_one_line_without_its_password(tmp_path, url):
    """DESIGN: errors say what to do."""
    towpath = Towpath(tmp_path)
    for words in (["jobs", "list"], ["stats"]):
        done = towpath(*words, "--database", url, "--connect-timeout", 0.1, code=1)
        assert done.stderr.startswith("towpath: ")
        assert done.stderr.count("\n") == 1
        assert "hunter2" not in done.stdout + done.stderr


def test_a_lost_database_is_one_line_in_a_process_too(tmp_path):
    """What is logged while a command tries again is not printed beside its error."""
    url = "postgresql://ada@127.0.0.1:1/none"
    words = ["stats", "--database", url, "--connect-timeout", 0.5]
    done = Towpath(tmp_path).process(*words, code=1)
    assert done.stderr.startswith("towpath: ")
    assert done.stderr.count("\n") == 1


def test_looking_creates_nothing(tmp_path):
    towpath = Towpath(tmp_path)
    for words in (["jobs", "list"], ["topics"], ["stats"], ["workers"], ["doctor"]):
        done = towpath(*words, "--database", "sqlite:///typo.db", code=1)
        assert "there is no file typo.db" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []

    towpath("migrate", "sqlite:///typo.db")
    assert towpath.json("jobs", "list", "--database", "sqlite:///typo.db")["jobs"] == []


def test_a_reader_that_goes_away_is_no_error(app, towpath):
    app.jobs.enqueue_many("mail", ["x" * 900] * 500)
    with towpath.start("jobs", "list", "--limit", 500) as listing:
        listing.stdout.readline()
        listing.stdout.close()
        assert listing.wait(20) == 141
        assert listing.stderr.read() == ""


def test_what_users_have_stored_cannot_steer_a_terminal(app, towpath):
    app.jobs.enqueue("mail", {"x": EVIL})
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, EVIL)

    for words in (["jobs", "list"], ["jobs", "show", lease.job.seq]):
        for shown in (towpath(*words).stdout, towpath(*words, "--json").stdout):
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    shown = towpath("jobs", "show", lease.job.seq).stdout
    assert r"\x1b[31mred\x07 \x9b1m [bold]no[/bold] \u202e :smile:" in shown
    [found] = towpath.json("jobs", "show", lease.job.seq)["jobs"]
    assert (found["payload"]["x"], found["last_error"]) == (EVIL, EVIL)


def test_passwords_and_the_like_are_not_shown_to_people(app, towpath):
    secrets = {"userPassword": "hunter2", "deep": [{"X-API-Key": "hunter2", "to": "ada"}]}
    job = app.jobs.enqueue("mail", secrets)
    app.jobs.complete(app.jobs.reserve("mail")[0], {"access_token": "hunter2"})

    for words in (["jobs", "list"], ["jobs", "show", job.seq]):
        shown = towpath(*words).stdout
        assert "hunter2" not in shown
        assert "ada" in shown
        assert "•••" in shown
    assert towpath("jobs", "show", job.seq, "--reveal").stdout.count("hunter2") == 3
    [found] = towpath.json("jobs", "show", job.seq)["jobs"]  # programs get what is there
    assert (found["payload"], found["result"]) == (secrets, {"access_token": "hunter2"})


def test_tables_fit_a_terminal_and_are_whole_in_a_pipe(app, towpath):
    topic = "a" * 60
    app.jobs.enqueue(topic, "wide " * 40)
    for command in (["jobs", "list"], ["topics"], ["stats"], ["workers"], ["doctor"]):
        _, shown = towpath.in_terminal(*command)
        rows = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert max(map(len, rows)) <= 80
        if command == ["jobs", "list"]:
            assert re.fullmatch(r" *1  a+…  ready        0  \d+ m?s  .wide.*…", rows[1])
        if command == ["topics"]:
            assert re.fullmatch(r"a+…     1 +\d+ m?s +0 +0 +0 +0 +0 +0", rows[1])
    piped = towpath("jobs", "list").stdout
    assert topic in piped
    assert "wide " * 40 in piped
    assert "\x1b" not in piped


def test_no_heading_and_no_number_is_cut_in_80_columns(app, towpath):
    app.jobs.enqueue_many("a-topic-with-a-long-name", range(12_345), delay=60)
    app.jobs.enqueue("mail")
    app.topics.pause("mail")

    for words in (["topics"], ["stats"]):
        _, shown = towpath.in_terminal(*words)
        *_, heads, first, second = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert heads.split() == [name for name in COLUMNS if name]
        assert first.split()[:4] == ["a-topic-wi…", "0", "-", "12k"]
        assert second.split()[-1] == "paused"
    assert "12,345" in towpath("stats").stdout


def test_no_colour_where_none_is_wanted(app, towpath):
    buried(app)
    assert "\x1b[31m" in towpath.in_terminal("jobs", "list")[1]
    towpath.environment["NO_COLOR"] = "1"
    assert "\x1b[31m" not in towpath.in_terminal("jobs", "list")[1]


def test_a_command_takes_the_database_of_an_app(tmp_path):
    (tmp_path / "shop.py").write_text("from towpath import App\napp = App('sqlite:///shop.db')\n")
    towpath = Towpath(tmp_path)
    towpath.process("jobs", "enqueue", "mail", "--app", "shop:app")

    assert (tmp_path / "shop.db").exists()
    listed = towpath.process("jobs", "list", "--app", "shop", "--json")
    assert json.loads(listed.stdout)["jobs"][0]["topic"] == "mail"
    both = towpath("stats", "--app", "shop", "--database", "memory://", code=2)
    assert "not both" in both.stderr


def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path):
    slow = "import time\nprint('here', flush=True)\ntime.sleep(60)\n"
    (tmp_path / "slow.py").write_text(slow)
    with Towpath(tmp_path).start("stats", "--app", "slow:app") as process:
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == ""


def test_backoff_is_part_of_a_jobs_options(app, towpath):
    job = app.jobs.enqueue("mail", backoff=Backoff(first=5.0))

    [found] = towpath.json("jobs", "show", job.id)["jobs"]
    assert found["options"]["backoff"]["first"] == 5.0


def test_schedules_are_listed_paused_run_and_deleted(app, towpath):
    """MS-10"""
    app.schedules.set("digest", topic="mail", payload={"user": 7}, cron="0 8 * * MON", tz="UTC")
    app.schedules.set("often", topic="post", every="5m")

    _, digest, often = lines(towpath("schedules"))
    assert digest[:2] == ["digest", "mail"]
    assert often[:4] == ["often", "post", "every", "300"]
    assert towpath.json("schedules")["schedules"][0]["payload"] == {"user": 7}

    assert towpath("schedules", "pause", "digest").stdout == "digest is paused\n"
    assert app.schedules.get("digest").paused
    towpath("schedules", "run", "digest")
    assert app.jobs.stats_topic("mail").ready == 1
    towpath("schedules", "resume", "digest")
    towpath("schedules", "delete", "often")
    assert [each.name for each in app.schedules.list()] == ["digest"]
    assert "there is no schedule" in towpath("schedules", "pause", "often", code=1).stderr
    towpath("schedules", "pause", code=2)
    towpath("schedules", "list", "digest", code=2)


def test_schedules_are_set_and_replaced(app, towpath):
    often = ["schedules", "set", "poll", "--topic", "fetch", "--every", "5m"]
    assert lines(towpath(*often))[1][:4] == ["poll", "fetch", "every", "300"]
    towpath(*often, "--payload", '{"shop": 7}', "--priority", 3, "--catch-up", "all")
    found = app.schedules.get("poll")
    assert (found.payload, found.catch_up) == ({"shop": 7}, "all")
    assert app.schedules.run("poll").priority == 3

    nightly = ["schedules", "set", "nightly", "--topic", "report", "--cron", "0 3 * * *"]
    [shown] = towpath.json(*nightly, "--tz", "Europe/Berlin")["schedules"]
    assert (shown["cron"], shown["tz"]) == ("0 3 * * *", "Europe/Berlin")
    for wrong, told in (
        (["set", "poll"], "set takes one name, and --topic"),
        (["set", "a", "b", "--topic", "x", "--every", "1m"], "set takes one name, and --topic"),
        (["pause", "poll", "--every", "1m"], "options of set, not of pause: --every"),
    ):
        assert told in towpath("schedules", *wrong, code=2).stderr
    towpath("schedules", "set", "poll", "--topic", "fetch", code=1)  # no rule


def test_a_failed_chain_is_requeued_as_a_whole(app, towpath):
    """What waits for a failed job comes with it, whichever is named first."""
    first = app.jobs.enqueue("mail", max_retries=1)
    last = app.jobs.enqueue("post", after=[first])
    [lease] = app.jobs.reserve("mail")
    app.jobs.fail(lease, "no")

    towpath("jobs", "requeue", "--all", "--status", "failed", "--yes")

    assert (app.jobs.get(first).state, app.jobs.get(last).state) == ("ready", "blocked")


def test_what_a_job_says_of_itself_is_shown(app, towpath):
    @app.task()
    def import_file(ctx: Context) -> None:
        ctx.progress(0.5, "half of it")
        ctx.log("a line\x1b[2J")

    job = import_file.enqueue()
    with working(app):
        ended(app, job)

    shown = towpath("jobs", "show", job.seq).stdout
    assert "50% half of it" in shown
    assert "a line\\x1b[2J" in shown
    [document] = towpath.json("jobs", "show", job.seq)["jobs"]
    assert (document["progress"], document["logs"][0]["text"]) == (0.5, "a line\x1b[2J")


# ---------------------------------------------------------------- backup


def test_a_sqlite_file_is_backed_up(tmp_path):
    towpath = Towpath(tmp_path, TOWPATH_DATABASE="sqlite:///app.db")
    assert "app.db" in towpath("backup", "copy.db", code=1).stderr  # there is nothing to copy
    towpath("jobs", "enqueue", "mail", '"x"')

    assert towpath("backup", "copy.db").stdout.startswith("copy.db is a copy of sqlite:///app.db")
    assert towpath.json("backup", "again.db")["bytes"] > 0
    assert "already" in towpath("backup", "copy.db", code=1).stderr

    copy = Towpath(tmp_path, TOWPATH_DATABASE="sqlite:///copy.db")
    assert [job["payload"] for job in copy.json("jobs", "list")["jobs"]] == ["x"]


def test_it_is_shown_when_a_job_expires(app, towpath):
    towpath("jobs", "enqueue", "mail", "1", "--expires-after", "1h")

    [job] = app.jobs.list()
    assert f"expires_at   {job.expires_at:%Y-%m-%d %H:%M:%S}Z" in towpath("jobs", "show", 1).stdout
    assert towpath.json("jobs", "show", 1)["jobs"][0]["expires_at"] is not None


# ---------------------------------------------------------------- the app of a command


@pytest.fixture
def projects(tmp_path):
    """A directory with a project inside it; each has an app on a file of its own."""
    inner = tmp_path / "inner"
    inner.mkdir()
    for name in ("of_option", "of_environment"):
        url = f"sqlite:///{tmp_path}/{name}.db"
        (inner / f"{name}.py").write_text(f"from towpath import App\napp = App({url!r})\n")
    url = f"sqlite:///{tmp_path}/of_file.db"
    (tmp_path / "of_file.py").write_text(f"from towpath import App\napp = App({url!r})\n")
    (tmp_path / "pyproject.toml").write_text('[tool.towpath]\napp = "of_file:app"\n')
    return inner


@pytest.mark.parametrize(
    ("option", "environment", "used"),
    [
        (["--app", "of_option"], {"TOWPATH_APP": "of_environment:app"}, "of_option.db"),
        (["--database", "sqlite:///url.db"], {"TOWPATH_APP": "of_environment:app"}, "inner/url.db"),
        ([], {"TOWPATH_APP": "of_environment:app"}, "of_environment.db"),
        ([], {"TOWPATH_DATABASE": "sqlite:///url.db"}, "of_file.db"),
    ],
)
def test_the_app_is_that_of_the_option_then_the_environment_then_the_file(
    projects, option, environment, used
):
    Towpath(projects, **environment).process("jobs", "enqueue", "mail", *option)

    assert list(projects.parent.rglob("*.db")) == [projects.parent / used]


def test_an_error_says_where_the_app_is_named(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.towpath]\napp = "nope:app"\n')
    towpath = Towpath(tmp_path)
    for words in (["worker"], ["stats"], ["serve"]):
        refused = towpath(*words, code=1).stderr
        assert "module nope is neither in" in refused
        assert refused.endswith(f"(nope:app is from {file})\n")
    assert "has its own settings; omit --schema" in towpath("stats", "--schema", "x", code=2).stderr
    towpath.environment["TOWPATH_APP"] = "nil:app"
    assert "(nil:app is from TOWPATH_APP)" in towpath("stats", code=1).stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool.towpath", "is not valid TOML"),
        ("[tool.towpath]\naap = 'x'", "unknown key `aap` under [tool.towpath]"),
        ("[tool.towpath]\napp = 5", "app = 5 under [tool.towpath]"),
        ("[tool]\ntowpath = 5", "[tool.towpath] must be a table"),
    ],
)
def test_a_pyproject_that_is_not_understood_is_one_line(tmp_path, text, told):
    (tmp_path / "pyproject.toml").write_text(text)
    assert told in Towpath(tmp_path)("stats", code=2).stderr


def test_a_worker_without_an_app_says_how_to_name_one(tmp_path):
    refused = Towpath(tmp_path)("worker", code=2).stderr
    assert "TOWPATH_APP" in refused
    assert "[tool.towpath]" in refused


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("queue", "'queue' is not a path"),
        ("/../queue", "'/../queue' is not a path"),
        ("/a b", "'/a b' is not a path"),
        ("/jobs/here", "Towpath has a path /jobs of its own"),
        ("/v1", "Towpath has a path /v1 of its own"),
    ],
)
def test_a_prefix_that_cannot_be_served_is_refused(towpath, prefix, why):
    assert why in towpath("serve", "--prefix", prefix, code=2).stderr
