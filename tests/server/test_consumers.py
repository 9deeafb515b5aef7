"""Durable consumers over HTTP and over a WebSocket."""

import pytest

from tests.conftest import eventually
from tests.server.conftest import Web, refused, token_of
from tests.server.sockets import Socket
from towpath import App, NewEvent
from towpath.app.hub import MOST_EVENTS as MOST_PAGE
from towpath.server.live import acking

PATH = "/api/channels/orders/consumers"
MAILER = f"{PATH}/mailer"


@pytest.fixture
def orders(web):
    """A channel with five events; return their cursors."""
    made = web.app.events.publish_many("orders", [NewEvent(n) for n in range(5)])
    return [each.cursor for each in made]


# ---------------------------------------------------------------- HTTP


def test_a_consumer_attaches_acks_and_goes_on(web, root, orders):
    """EV-2, EV-6"""
    first = web.put(MAILER, as_=root).json()
    acked = web.post(f"{MAILER}/ack", {"cursor": orders[2], "generation": 1}, as_=root).json()
    older = web.post(f"{MAILER}/ack", {"cursor": orders[0], "generation": 1}, as_=root).json()
    second = web.put(MAILER, {"from": "now"}, as_=root).json()
    [shown] = web.get(PATH, as_=root).json()["items"]

    assert first["generation"] == 1
    assert first["cursor"] < orders[0]
    assert acked == older == {"cursor": orders[2]}
    assert second == {"cursor": orders[2], "generation": 2}
    assert (shown["name"], shown["lag"], shown["generation"]) == ("mailer", 2, 2)
    assert not shown["isExpired"]


@pytest.mark.parametrize(("start", "lag"), [("start", 5), ("now", 0), (1, 3)])
def test_a_new_consumer_begins_where_it_wants(web, root, orders, start, lag):
    start = orders[start] if isinstance(start, int) else start
    web.put(MAILER, {"from": start}, as_=root)

    assert web.get(PATH, as_=root).json()["items"][0]["lag"] == lag


def test_an_ack_that_cannot_be_is_refused(web, root, orders):
    web.put(MAILER, as_=root)
    web.put(MAILER, as_=root)
    other = web.app.events.publish("other", 1).cursor
    ahead = orders[4][:-1] + "6"

    def ack(cursor, generation=2, path=MAILER):
        body = {"cursor": cursor, "generation": generation}
        return refused(web.post(f"{path}/ack", body, as_=root))

    assert ack(orders[4], 1) == (409, "consumer_fenced")
    assert ack(orders[4], 3) == (409, "consumer_fenced")
    assert ack(ahead) == ack(other) == (410, "cursor_reset")
    assert ack("x") == ack("") == (400, "invalid_cursor")
    assert ack(orders[4], path=f"{PATH}/nobody") == (404, "not_found")
    assert ack(orders[4], -1) == ack(orders[4], 2**63) == ack(orders[4], 1.5) == (400, "invalid")
    assert web.get(PATH, as_=root).json()["items"][0]["lag"] == 5


def test_a_consumer_is_moved_and_forgotten(web, root, orders):
    web.put(MAILER, as_=root)
    moved = web.post(f"{MAILER}/move", {"from": orders[3]}, as_=root).json()
    back = web.post(f"{MAILER}/move", {"from": "start"}, as_=root).json()
    fenced = web.post(f"{MAILER}/ack", {"cursor": orders[4], "generation": 1}, as_=root)

    assert moved == {"cursor": orders[3]}
    assert back["cursor"] < orders[0]
    assert refused(fenced) == (409, "consumer_fenced")
    assert web.delete(MAILER, as_=root).status_code == 204
    assert refused(web.delete(MAILER, as_=root)) == (404, "not_found")
    assert refused(web.post(f"{MAILER}/move", {"from": "now"}, as_=root)) == (404, "not_found")
    assert web.get(PATH, as_=root).json()["items"] == []


def test_what_a_channel_keeps_is_set(web, root, orders):
    assert web.put("/api/channels/orders/limits", {"maxCount": 2}, as_=root).status_code == 204
    web.app.upkeep.run()

    assert web.get("/api/channels/orders", as_=root).json()["events"] == 2
    for wrong in (
        {"maxCount": -1},
        {"maxAge": -1},
        {"maxBytes": 2**63},
        {"maxCount": 1.5},
        {"x": 1},
    ):
        assert refused(web.put("/api/channels/orders/limits", wrong, as_=root))[0] == 400
    job = web.app.jobs.enqueue("mail", {})
    limited = web.put(f"/api/channels/job:{job.id}/limits", {}, as_=root)
    assert refused(limited) == (400, "invalid")


def answers(web, token, cursor):
    """Use a consumer in every way; return the codes of the refusals, None for what was done."""

    def code(response):
        return None if response.status_code < 400 else refused(response)[1]

    return [
        code(web.put(MAILER, as_=token)),
        code(web.post(f"{MAILER}/ack", {"cursor": cursor, "generation": 1}, as_=token)),
        code(web.get(PATH, as_=token)),
        code(web.post(f"{MAILER}/move", {"from": "now"}, as_=token)),
        code(web.put("/api/channels/orders/limits", {}, as_=token)),
        code(web.delete(MAILER, as_=token)),
    ]


def test_a_consumer_is_used_by_its_owner_and_by_callers_that_may_manage(web, ada, bob, orders):
    """Decisions of rights: a reader has consumers of its own, and cannot take those of others."""
    reader = web.app.keys.create("r", scopes=["subscribe"], channels=["orders"])[1]
    manager = web.app.keys.create("m", scopes=["subscribe", "manage"])[1]
    elsewhere = web.app.keys.create("e", scopes=["subscribe", "manage"], channels=["news"])[1]
    readers = {"subscribe_rule": "@request.auth.id != ''"}

    def used_by(token):
        return answers(web, token, orders[0])

    assert used_by(elsewhere) == used_by(ada) == ["forbidden"] * 6
    assert used_by(None) == ["login_required"] * 6
    web.app.access.set(channels={"orders": readers})
    own = [None, None, "forbidden", None, "forbidden", None]
    taken = ["consumer_taken"] * 2 + ["forbidden", "consumer_taken"] * 2
    assert used_by(reader) == used_by(ada) == own
    web.put(MAILER, as_=ada)
    assert used_by(bob) == used_by(reader) == taken
    assert web.get(PATH, as_=manager).json()["items"][0]["owner"].startswith("users ")
    assert used_by(manager) == [None, "consumer_fenced", None, None, None, None]
    web.put(MAILER, as_=manager)
    assert used_by(ada) == taken
    web.app.access.set(channels={"orders": {"subscribe_rule": "true"}})
    assert used_by(None) == ["login_required"] * 6  # all callers without a login are one


def test_a_consumer_of_the_app_is_for_callers_that_may_manage(web, ada, root, orders):
    web.app.access.set(channels={"orders": {"subscribe_rule": "@request.auth.id != ''"}})
    web.app.events.attach("orders", "mailer")

    assert refused(web.put(MAILER, as_=ada)) == (403, "consumer_taken")
    assert web.put(MAILER, as_=root).json()["generation"] == 2


def test_a_reader_does_not_make_a_channel_by_attaching(web):
    reader = web.app.keys.create("r", scopes=["subscribe"])[1]
    writer = web.app.keys.create("w", scopes=["subscribe", "publish"])[1]
    socket = Socket(web, reader)
    told = socket.ask(subscribe={"channel": "orders", "consumer": "mailer"})
    socket.close()

    assert told["error"]["code"] == "not_found"
    assert refused(web.put(MAILER, as_=reader)) == (404, "not_found")
    assert web.app.events.list() == []
    assert web.put(MAILER, as_=writer).status_code == 200


def test_a_channel_has_room_for_so_many_consumers(make_app, loop, quick_passwords):
    """Each keeps a row, and may hold events back: a reader must not make them without end."""
    web = Web(make_app(max_consumers=2), loop)
    reader = web.app.keys.create("r", scopes=["subscribe"])[1]
    web.app.events.publish("orders", 1)
    for name in "ab":
        assert web.put(f"{PATH}/{name}", as_=reader).status_code == 200

    assert refused(web.put(f"{PATH}/c", as_=reader)) == (429, "max_consumers_reached")
    assert web.put(f"{PATH}/a", as_=reader).json()["generation"] == 2
    web.delete(f"{PATH}/b", as_=reader)
    assert web.put(f"{PATH}/c", as_=reader).status_code == 200
    web.close()


# ---------------------------------------------------------------- WebSocket


@pytest.fixture
def apps(durable_place):
    """Two apps on one database, as two processes have them."""
    url, needed = durable_place
    with App(url, **needed) as one, App(url, **needed) as other:
        yield one, other


@pytest.fixture
def connect(apps, loop, quick_passwords):
    """Connect as a superuser to the server of the first or the second app."""
    webs = [Web(app, loop) for app in apps]
    token = token_of(apps[0], "_superusers", "root@example.org")
    made = []

    def connect(web=0):
        made.append(Socket(webs[web], token))
        return made[-1]

    yield connect
    for each in (*made, *webs):
        each.close()


def rest(socket):
    """Return the frames that have come."""
    frames = []
    while not socket._frames.empty():
        frames.append(socket.receive())
    return frames


def subscribed(socket, **more):
    return socket.ask(subscribe={"channel": "orders", "consumer": "mailer", **more})["ok"]


def test_a_client_goes_on_behind_its_last_ack(connect, apps):
    """EV-2, EV-6: what was sent and not acked comes again."""
    apps[0].events.publish_many("orders", [NewEvent(n) for n in range(5)])
    first = connect()
    told = subscribed(first)
    items = first.until("events")["items"]
    cursors = [item["cursor"] for item in items]
    answer = first.ask(ack={"channel": "orders", "cursor": cursors[2]})
    first.send(ack={"channel": "orders", "cursor": cursors[3]})  # without an answer
    eventually(lambda: apps[0].events.consumers("orders")[0].lag == 1)
    second = connect()
    again = subscribed(second, **{"from": "now"})

    assert answer["ok"] == {"cursor": cursors[2]}
    assert (told["generation"], again["generation"]) == (1, 2)
    assert again["cursor"] == cursors[3]
    assert second.events(1) == [4]
    assert not any('"id":null' in message.get("text", "") for message in first.sent)


@pytest.mark.parametrize("other", [0, 1])
def test_a_second_reader_fences_the_first(connect, apps, other):
    """EV-2: also one of another process; the first gets no further event."""
    first = connect()
    subscribed(first)
    second = connect(other)
    assert subscribed(second)["generation"] == 2
    assert first.until("reset") == {"channel": "orders", "reason": "fenced"}
    cursor = apps[0].events.publish("orders", 1).cursor

    assert second.events(1) == [1]
    assert "error" in first.ask(ack={"channel": "orders", "cursor": cursor})
    assert not any('"events"' in message.get("text", "") for message in first.sent)
    assert apps[0].events.consumers("orders")[0].lag == 1


def test_a_client_that_was_cut_off_goes_on_and_fences_no_other(connect, apps):
    """EV-2: with the generation of its attachment, which is refused once another has attached."""
    cursors = [each.cursor for each in apps[0].events.publish_many("orders", [NewEvent(1)] * 3)]
    first = connect()
    subscribed(first)
    first.ask(ack={"channel": "orders", "cursor": cursors[1]})
    first.close()
    again = connect(1)
    told = subscribed(again, generation=1)
    assert (told["cursor"], told["generation"]) == (cursors[1], 1)
    assert again.events(1) == [1]
    again.close()
    second = connect()
    assert subscribed(second)["generation"] == 2

    late = connect(1)
    ask = {"channel": "orders", "consumer": "mailer", "generation": 1}
    assert late.ask(subscribe=ask)["error"]["code"] == "consumer_fenced"
    assert late.ask(subscribe={**ask, "generation": -1})["error"]["code"] == "invalid"
    assert late.ask(subscribe={**ask, "consumer": None})["error"]["code"] == "invalid"
    assert late.ask(subscribe={**ask, "consumer": "none"})["error"]["code"] == "not_found"
    assert second.ask(ack={"channel": "orders", "cursor": cursors[2]})["ok"]["cursor"] == cursors[2]


def test_a_consumer_that_is_moved_or_forgotten_is_reset(connect, apps):
    moved, forgotten = connect(), connect()
    subscribed(moved)
    apps[1].events.move_consumer("orders", "mailer", "now")
    assert moved.until("reset")["reason"] == "fenced"
    subscribed(forgotten)
    apps[1].events.forget_consumer("orders", "mailer")

    assert forgotten.until("reset")["reason"] == "not_found"


def test_a_client_that_does_not_ack_gets_so_many_events_and_no_more(connect, apps):
    """EV-3: it waits at 1,000 events; a second consumer and a reader without one do not."""
    for _ in range(3):
        apps[0].events.publish_many("orders", [NewEvent(0)] * 700)
    client, reader = connect(), connect()
    subscribed(client)
    reader.ask(subscribe={"channel": "orders"})
    assert len(reader.events(2_100)) == 2_100
    batches = [client.until("events")]
    while sum(len(each["items"]) for each in batches) + MOST_PAGE <= acking.MOST_EVENTS:
        batches.append(client.until("events"))
    client.ask(publish={"channel": "other", "events": [{}]})

    assert client._frames.empty()
    seen = sum(len(each["items"]) for each in batches)
    assert seen <= acking.MOST_EVENTS
    while seen < 2_100:
        client.send(ack={"channel": "orders", "cursor": batches[-1]["to"]})
        batches.append(client.until("events"))
        assert batches[-1]["from"] == batches[-2]["to"]
        seen += len(batches[-1]["items"])
    assert seen == 2_100


def test_a_client_that_does_not_ack_gets_so_many_bytes_and_no_more(connect, apps):
    for _ in range(8):
        apps[0].events.publish("orders", "x" * 250_000)
    client = connect()
    subscribed(client)
    batches = [client.until("events")]
    while sum(len(each["items"]) for each in batches) < 4:
        batches.append(client.until("events"))
    client.ask(publish={"channel": "other", "events": [{}]})

    assert client._frames.empty()
    client.send(ack={"channel": "orders", "cursor": batches[0]["to"]})
    assert client.until("events")["from"] == batches[-1]["to"]


def test_a_client_that_waits_for_its_own_acks_is_fenced(connect, apps, monkeypatch):
    """EV-2"""
    monkeypatch.setattr(acking, "MOST_EVENTS", 1)
    apps[0].events.publish("orders", 1)
    client = connect()
    subscribed(client)
    assert client.events(1) == [1]
    apps[0].events.publish("orders", 2)
    apps[1].events.attach("orders", "mailer")

    assert client.until("reset")["reason"] == "fenced"
    assert not any("items" in frame.get("events", {}) for frame in rest(client))


def test_events_that_a_client_does_not_want_are_acked_for_it(connect, apps):
    """Otherwise they would be held back for ever."""
    events = apps[0].events
    events.publish_many("orders", [NewEvent(n, type="other") for n in range(5)])
    client = connect()
    subscribed(client, types=["said"])
    eventually(lambda: events.consumers("orders")[0].lag == 0)
    events.publish("orders", "wanted", type="said")
    events.publish("orders", "other", type="other")
    cursor = client.until("events")["items"][0]["cursor"]
    assert events.consumers("orders")[0].lag == 2
    client.send(ack={"channel": "orders", "cursor": cursor})

    eventually(lambda: events.consumers("orders")[0].lag == 0)


def test_a_wrong_ack_is_answered(connect, apps):
    cursor = apps[0].events.publish("orders", 1).cursor
    client = connect()

    def ack(**more):
        answer = client.ask(ack={"channel": "orders", "cursor": cursor, **more})
        return answer.get("error", {}).get("code")

    assert ack() == "invalid"  # not subscribed to
    client.ask(subscribe={"channel": "orders"})
    assert ack() == "invalid"  # not as a consumer
    client.ask(unsubscribe={"channel": "orders"})
    subscribed(client)
    assert ack(cursor="x") == "invalid_cursor"
    assert ack(cursor=cursor[:-1] + "9") == "cursor_reset"
    assert ack(generation=7) == "consumer_fenced"
    assert ack(generation=-1) == ack(generation="1") == "invalid"
    assert ack(generation=1) is None
    assert apps[0].events.consumers("orders")[0].lag == 0
    wrong = client.ask(subscribe={"channel": "b", "consumer": "a b"})
    assert wrong["error"]["code"] == "invalid"


def test_an_overtaken_consumer_is_told_and_can_be_moved(connect, apps):
    """EV-5"""
    events = apps[0].events
    events.attach("orders", "mailer")
    events.publish_many("orders", [NewEvent(n) for n in range(5)])
    events.limit("orders", max_count=2)
    apps[0].upkeep.run()
    client = connect()
    told = client.ask(subscribe={"channel": "orders", "consumer": "mailer"})["error"]
    events.move_consumer("orders", "mailer", told["details"]["oldest"])
    subscribed(client)

    assert (told["code"], told["details"]["reason"]) == ("cursor_reset", "retention")
    assert client.events(2) == [3, 4]


def test_a_reader_over_a_websocket_has_consumers_of_its_own(web, ada, bob, orders):
    """A second reader that is not the owner neither attaches nor fences the first."""
    web.app.access.set(channels={"orders": {"subscribe_rule": "@request.auth.id != ''"}})
    first, second = Socket(web, ada), Socket(web, bob)
    subscribed(first)
    refusal = second.ask(subscribe={"channel": "orders", "consumer": "mailer"})["error"]
    subscribed(second, consumer="other")
    items = first.until("events")["items"]
    acked = first.ask(ack={"channel": "orders", "cursor": items[-1]["cursor"], "generation": 1})

    assert refusal["code"] == "consumer_taken"
    assert acked["ok"] == {"cursor": items[-1]["cursor"]}
    first.close()
    second.close()
