"""What WebSockets cost without us: each message goes to all other sockets."""

import sys
from typing import Any

import uvicorn


class Broadcast:
    """An ASGI application on the same server as ours, with the same options."""

    def __init__(self) -> None:
        self.clients: set[Any] = set()

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.clients.add(send)
        while (message := await receive())["type"] != "websocket.disconnect":
            sent = {"type": "websocket.send", "text": message["text"]}
            for each in self.clients:
                if each is not send:
                    await each(sent)
        self.clients.discard(send)


def main(port: int) -> None:
    uvicorn.run(
        Broadcast(), port=port, loop="uvloop", http="httptools", ws="websockets-sansio",
        ws_per_message_deflate=False, lifespan="off", access_log=False, log_level="warning",
        backlog=2_048,
    )  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]))
