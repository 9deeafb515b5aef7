"""A receiver of webhooks in a process of its own: `python -m bench.hook_receiver` prints its port.

It answers 204 as soon as a body is complete, and does nothing else, so that the sender is measured.
"""

import asyncio

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
LENGTH = b"content-length:"


class Receiving(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            start = head.index(LENGTH) + len(LENGTH)
            whole = end + 4 + int(head[start:].split(b"\r\n", 1)[0])
            if len(self._data) < whole:
                return
            self._data = self._data[whole:]
            self._transport.write(ANSWER)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Receiving, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
