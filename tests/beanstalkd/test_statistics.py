"""What the statistics count."""

from tests.conftest import eventually


def test_commands_count_when_they_have_come(served):
    client, waiting = served.client(), served.client()
    waiting.say("reserve\r\nreserve\r\n")
    eventually(lambda: client.told("stats")["current-waiting"] == "1")

    client.ask("put 0 0 1 70000\r\n" + "x" * 70_000, "JOB_TOO_BIG")
    client.ask("put 0 0 1 1\r\nxyz", "EXPECTED_CRLF", "UNKNOWN_COMMAND")

    told = client.told("stats")
    assert (told["cmd-reserve"], told["cmd-put"]) == ("1", "2")


def test_the_delay_of_a_job_that_was_released_is_not_that_of_its_put(client):
    client.put(delay=1_000)
    client.ask("reserve-job 1", "RESERVED 1 1", "a")
    client.ask("release 1 0 0", "RELEASED")

    assert client.told("stats-job 1")["delay"] == "0"


def test_a_connection_whose_reserve_by_number_found_nothing_is_no_worker(served):
    client, worker = served.client(), served.client()
    client.put()
    worker.ask("reserve", "RESERVED 1 1", "a")
    client.ask("reserve-job 7", "NOT_FOUND")
    client.ask("reserve-job 1", "NOT_FOUND")

    assert client.told("stats")["current-workers"] == "1"
