"""What /metrics tells of events: sums of a process, never names of channels."""

import re

from tests.conftest import eventually
from tests.server.conftest import token_of
from tests.server.listening import Listener
from tests.server.sockets import Socket

CHAT = "/api/channels/chat/events"


def test_events_connections_and_resets_are_counted(live_web):
    web, app = live_web, live_web.app
    root = token_of(app, "_superusers", "root@example.org")

    def told():
        found = re.findall(
            r'(towpath_event\w+){\w+="(\w+)"} (\d+)', web.get("/metrics", as_=root).text
        )
        return {(name, label): int(value) for name, label, value in found}

    web.post(CHAT, {"events": [{"payload": 1}, {"payload": 2}]}, as_=root)
    web("POST", "/v1/stream/chat", [3, 4, 5], as_=root)
    socket = Socket(web, root)
    socket.ask(publish={"channel": "chat", "events": [{"payload": 6}]})
    socket.ask(subscribe={"channel": "chat"})
    assert len(socket.events(6)) == 6
    web.get(CHAT, as_=root, params={"limit": 4})
    web.get("/v1/stream/chat", as_=root)
    listener = Listener(web, root, CHAT, accept="text/event-stream")
    listener.read()
    eventually(lambda: '"current"' in listener.text)

    assert told() == {
        ("towpath_events_published_total", "http"): 2,
        ("towpath_events_published_total", "stream"): 3,
        ("towpath_events_published_total", "websocket"): 1,
        ("towpath_events_sent_total", "http"): 4,
        ("towpath_events_sent_total", "sse"): 6,
        ("towpath_events_sent_total", "stream"): 6,
        ("towpath_events_sent_total", "websocket"): 6,
        ("towpath_event_connections", "sse"): 1,
        ("towpath_event_connections", "websocket"): 1,
        ("towpath_event_subscriptions", "websocket"): 1,
    }
    app.events.delete("chat")
    assert listener.ended()
    socket.until("reset")
    socket.close()
    assert (
        told()
        | {
            ("towpath_event_connections", "sse"): 0,
            ("towpath_event_connections", "websocket"): 0,
            ("towpath_event_subscriptions", "websocket"): 0,
            ("towpath_event_resets_total", "channel"): 2,
        }
        == told()
    )
