"""DQ-17: what clients rely on beyond the words of the protocol; the numbers are those of §2.2."""

import greenstalk
import pytest

from tests.conftest import eventually


def test_1_a_reservation_ends_with_its_connection_and_no_counter_moves(served):
    producer, worker = served.greenstalk(), served.greenstalk()
    job = worker.reserve_job(producer.put("a"))
    worker.close()

    eventually(lambda: producer.stats_job(job.id)["state"] == "ready")
    told = producer.stats_job(job.id)
    assert told["reserves"] == 1
    assert told["timeouts"] == told["releases"] == told["buries"] == told["kicks"] == 0


def test_1_however_many_reservations_end_with_their_connection(served):
    holder, other = served.client(), served.client()
    holder.say("put 0 0 60 1\r\na\r\n" * 1_200 + "reserve\r\n" * 1_200)
    assert [holder.line()[:9] for _ in range(1_200)] == [b"INSERTED "] * 1_200
    assert {holder.line()[:9] for _ in range(2_400)} == {b"RESERVED ", b"a\r\n"}
    holder.close()

    eventually(lambda: other.told("stats")["current-jobs-ready"] == "1200")


@pytest.mark.parametrize("word", ["touch {}", "bury {} 0"])
def test_1_what_somebody_took_away_is_held_no_more(served, word):
    """Else a client that holds nothing would be told that its time is nearly over."""
    client = served.client()
    client.ask("put 0 0 2 1\r\na", "INSERTED 1")
    client.ask("reserve", "RESERVED 1 1", "a")
    served.app.sessions.end(served.door.session)  # which gives back what it holds

    client.ask(word.format(1), "NOT_FOUND")
    client.ask("watch other", "WATCHING 2")
    client.ask("ignore default", "WATCHING 1")
    client.ask("reserve-with-timeout 1", "TIMED_OUT")


def test_2_anybody_deletes_what_is_ready_delayed_or_buried(served):
    one, other = served.greenstalk(), served.greenstalk()
    ready, delayed, buried = one.put("r"), one.put("d", delay=100), one.put("b", priority=0)
    one.bury(one.reserve())

    for number in (ready, delayed, buried):
        other.delete(number)
        with pytest.raises(greenstalk.NotFoundError):
            one.peek(number)


def test_2_what_is_reserved_only_its_holder_deletes(served):
    one, other = served.greenstalk(), served.greenstalk()
    one.put("a")
    job = one.reserve()

    with pytest.raises(greenstalk.NotFoundError):
        other.delete(job)
    one.delete(job)


def test_3_the_smallest_priority_of_all_watched_tubes_then_the_smallest_number(served):
    client = served.greenstalk(watch=["x", "y"])
    for tube, body, priority in (("x", "1", 5), ("y", "2", 3), ("x", "3", 3), ("y", "4", 5)):
        client.use(tube)
        client.put(body, priority=priority)

    assert [client.reserve().body for _ in range(4)] == ["2", "3", "1", "4"]


def test_3_a_released_job_goes_ahead_of_newer_equals(client):
    client.put(b"old", priority=5)
    client.ask("reserve", "RESERVED 1 3", "old")
    client.put(b"new", priority=5)
    client.ask("release 1 5 0", "RELEASED")

    client.ask("reserve", "RESERVED 1 3", "old")


def test_4_no_deadline_soon_while_a_job_is_ready(client):
    client.put(ttr=1)
    client.put(ttr=100)
    client.ask("reserve", "RESERVED 1 1", "a")

    client.ask("reserve-with-timeout 0", "RESERVED 2 1", "a")
    client.ask("reserve-with-timeout 0", "DEADLINE_SOON")


def test_4_deadline_soon_wakes_one_who_waits(client):
    client.put(ttr=2)
    client.ask("reserve", "RESERVED 1 1", "a")

    client.ask("reserve", "DEADLINE_SOON")


def test_4_a_job_that_comes_is_better_than_deadline_soon(served, client):
    client.put(ttr=100)
    client.ask("reserve", "RESERVED 1 1", "a")
    client.say("reserve\r\n")
    eventually(lambda: served.door.tube("default").waiting == 1)
    served.client().put(b"b")

    client.hear("RESERVED 2 1", "b")


def test_5_touch_begins_the_time_anew_as_often_as_one_likes(client):
    client.put(ttr=100)
    client.ask("reserve", "RESERVED 1 1", "a")

    for _ in range(30):
        client.ask("touch 1", "TOUCHED")
    assert 90 <= int(client.told("stats-job 1")["time-left"]) <= 100


def test_6_kick_takes_buried_jobs_first_in_the_order_of_their_burial(client):
    for priority in (3, 2, 1):
        client.put(b"%d" % priority, priority=priority)
    client.put(b"later", delay=100)
    client.ask("reserve\r\nreserve\r\nreserve", *_reserved((3, "1"), (2, "2"), (1, "3")))
    client.ask("bury 2 9\r\nbury 3 5\r\nbury 1 7", "BURIED", "BURIED", "BURIED")

    client.ask("kick 1", "KICKED 1")
    assert client.told("stats-job 2")["state"] == "ready"
    client.ask("kick 10", "KICKED 2")
    client.ask("kick 10", "KICKED 1")
    assert client.told("stats-job 4")["state"] == "ready"


def test_6_kick_of_minus_one_is_all_and_what_follows_a_number_is_not_read(client):
    for _ in range(3):
        client.put(delay=100)

    client.ask("kick 1junk", "KICKED 1")
    client.ask("kick 4294967296", "KICKED 0")
    client.ask("kick 4294967297", "KICKED 1")
    client.ask("kick -1", "KICKED 1")
    client.ask("kick 99999999999999999999", "BAD_FORMAT")
    client.ask("kick junk", "BAD_FORMAT")


def test_7_after_expected_crlf_reading_goes_on_behind_the_body(client):
    client.ask("put 0 0 1 1\r\naXXuse ok", "EXPECTED_CRLF", "USING ok")


def test_8_the_body_of_a_bad_put_is_read_as_a_command(client):
    client.ask("put 0 0 1\r\nbody", "BAD_FORMAT", "UNKNOWN_COMMAND")


def test_8_a_body_that_is_too_big_is_swallowed(serve):
    client = serve(most_body=3).client()

    client.ask("put 0 0 1 9\r\nuse evil1\r\nuse good", "JOB_TOO_BIG", "USING good")


def test_9_a_line_that_is_too_long_is_refused_once(client):
    client.ask(f"use {'a' * 220}\r\nuse b", "BAD_FORMAT", "USING b")


@pytest.mark.parametrize("line", [b"use a\0b", b"\0", b"delete 1\0"])
def test_9_no_line_has_a_nul(client, line):
    client.ask(line, "BAD_FORMAT")


@pytest.mark.parametrize(
    "line", ["list-tube-usedX", "statsX", "reserve ", "reserve-jobX", "peek-readyX", "list-tubesX"]
)
def test_9_what_begins_as_a_command_is_badly_formed_not_unknown(client, line):
    client.ask(line, "BAD_FORMAT")


@pytest.mark.parametrize("line", ["USE a", "put", "use", "", " use a", "delete"])
def test_9_what_does_not_is_unknown(client, line):
    client.ask(line, "UNKNOWN_COMMAND")


def test_10_numbers_as_they_may_be_written(client):
    client.ask("reserve-with-timeout -1", "BAD_FORMAT")
    client.ask("reserve-with-timeout 0junk", "TIMED_OUT")
    client.ask("delete  3", "NOT_FOUND")
    client.ask("delete 3x", "BAD_FORMAT")


def test_11_a_client_that_half_closes_while_it_waits_is_told_that_time_is_over(served, client):
    client.say("reserve\r\n")
    eventually(lambda: served.door.tube("default").waiting == 1)
    client.socket.shutdown(1)

    client.hear("TIMED_OUT")
    client.ends()


def test_11_commands_behind_a_blocked_reserve_wait_for_it(served, client):
    client.say("reserve\r\nuse behind\r\n")
    eventually(lambda: served.door.tube("default").waiting == 1)
    assert served.door.tube("behind").using == 0
    served.client().put(b"x")

    client.hear("RESERVED 1 1", "x", "USING behind")


def test_12_watching_twice_and_ignoring_what_is_not_watched_changes_nothing(client):
    client.ask("watch a\r\nwatch a", "WATCHING 2", "WATCHING 2")
    client.ask("ignore nothing", "WATCHING 2")
    client.ask("ignore a\r\nignore default", "WATCHING 1", "NOT_IGNORED")


def test_13_tubes_are_there_while_they_are_used_watched_or_not_empty(served, client):
    other = served.client()
    other.ask("use u\r\nwatch w", "USING u", "WATCHING 2")
    client.ask("use full", "USING full")
    client.put()
    client.ask("use default", "USING default")

    assert set(client.text("list-tubes")[1:]) == {"- default", "- full", "- u", "- w"}
    other.close()
    client.ask("delete 1", "DELETED")
    eventually(lambda: client.text("list-tubes") == ["---", "- default"])
    client.ask("stats-tube full", "NOT_FOUND")


def test_14_text_is_quoted_in_statistics_but_not_in_lists(client):
    client.ask("use t0", "USING t0")
    client.put()
    job, tube, server = (client.told(f"stats{kind}") for kind in ("-job 1", "-tube t0", ""))

    assert (job["tube"], job["state"], job["id"]) == ('"t0"', "ready", "1")
    assert tube["name"] == '"t0"'
    for name in ("version", "hostname", "os", "platform"):
        assert server[name].startswith('"')
        assert server[name].endswith('"')
    assert server["draining"] == "false"
    assert client.text("list-tubes-watched") == ["---", "- default"]


def test_14_statistics_of_a_job_byte_for_byte(client):
    client.put(b"body", priority=7, ttr=120)
    text = (
        '---\nid: 1\ntube: "default"\nstate: ready\npri: 7\nage: 0\ndelay: 0\nttr: 120\n'
        "time-left: 0\nfile: 0\nreserves: 0\ntimeouts: 0\nreleases: 0\nburies: 0\nkicks: 0\n"
    )

    client.ask("stats-job 1", f"OK {len(text)}", text)


def test_15_while_a_tube_is_paused_its_jobs_are_ready_and_not_handed_out(client):
    client.put()
    client.ask("pause-tube default 100", "PAUSED")

    client.ask("reserve-with-timeout 0", "TIMED_OUT")
    client.ask("peek-ready", "FOUND 1 1", "a")
    told = client.told("stats-tube default")
    assert (told["current-jobs-ready"], told["pause"]) == ("1", "100")
    assert 90 <= int(told["pause-time-left"]) <= 100


def test_15_one_who_waits_is_woken_when_the_pause_ends(client):
    client.put()
    client.ask("pause-tube default 1", "PAUSED")

    client.ask("reserve", "RESERVED 1 1", "a")


def test_16_counters_begin_anew_with_the_process_but_jobs_do_not(executable, tmp_path):
    server = executable("-b", str(tmp_path))
    client = server.client()
    client.put()
    first = client.told("stats")
    server.kill()
    server.start()

    again = server.client().told("stats")

    assert (first["total-jobs"], again["total-jobs"]) == ("1", "0")
    assert (first["cmd-put"], again["cmd-put"]) == ("1", "0")
    assert (first["current-jobs-ready"], again["current-jobs-ready"]) == ("1", "1")
    assert first["id"] != again["id"]


# ---------------------------------------------------------------- the same tickets


def test_a_job_of_another_door_is_reserved_as_json(served, client):
    job = served.app.jobs.enqueue("mail", {"to": "ada"}, priority=3)
    client.ask("watch mail", "WATCHING 2")

    client.ask("reserve", f"RESERVED {job.seq} 12", '{"to":"ada"}')
    assert served.app.jobs.get(job).state == "reserved"
    client.ask(f"bury {job.seq} 3", "BURIED")
    assert served.app.jobs.get(job).status == "failed"


def test_a_job_of_this_door_is_seen_by_the_others(served, client):
    client.ask("use mail", "USING mail")
    number = client.put(b"\x00\xff", priority=9, ttr=30)

    job = served.app.jobs.numbered(number)

    assert (job.topic, job.payload, job.priority) == ("mail", b"\x00\xff", 9)
    [lease] = served.app.jobs.reserve("mail")
    client.ask(f"delete {number}", "NOT_FOUND")
    served.app.jobs.complete(lease)
    client.ask(f"peek {number}", "NOT_FOUND")
    client.ask(f"stats-job {number}", "NOT_FOUND")


def test_a_tube_outside_the_alphabet_of_topics_is_a_tube_like_any_other(served, client):
    client.ask("use a.b/c", "USING a.b/c")
    client.put()

    assert client.told("stats-job 1")["tube"] == '"a.b/c"'
    assert "- a.b/c" in client.text("list-tubes")
    assert served.app.topics.list() == ["x--a-db-sc"]
    client.ask("watch a.b/c", "WATCHING 2")
    client.ask("reserve", "RESERVED 1 1", "a")


def test_pipelined_commands_are_answered_in_order(client):
    client.say(
        "put 1 0 9 1\r\na\r\nput 1 0 9 1\r\nb\r\nreserve\r\nreserve\r\nreserve-with-timeout 0\r\n"
    )
    client.hear("INSERTED 1", "INSERTED 2", *_reserved((1, "a"), (2, "b")), "TIMED_OUT")

    client.say("delete 1\r\ndelete 1\r\ndelete 7\r\ndelete 2\r\nuse x\r\n")
    client.hear("DELETED", "NOT_FOUND", "NOT_FOUND", "DELETED", "USING x")


def test_reserves_that_are_pipelined_are_answered_as_jobs_come(served, client):
    client.say("reserve\r\nreserve\r\n")
    other = served.client()
    other.put(b"1")
    client.hear("RESERVED 1 1", "1")
    other.put(b"2")
    client.hear("RESERVED 2 1", "2")


def _reserved(*jobs):
    return [line for number, body in jobs for line in (f"RESERVED {number} {len(body)}", body)]
