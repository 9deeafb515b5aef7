"""A load on a beanstalkd server, by a process of its own: prints its rate as JSON.

python -m bench.beanstalkd_load with what to do as JSON: port, what, connections, count, pipelined
"""

import asyncio
import json
import sys
import time

BODY = b"x" * 100
PUT = b"put 10 0 60 %d\r\n%b\r\n" % (len(BODY), BODY)


class Client:
    """One connection that asks for so many things at once and waits for their answers."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def put(self, count: int, at_once: int) -> None:
        for done in range(0, count, at_once):
            size = min(at_once, count - done)
            self._writer.write(PUT * size)
            for _ in range(size):
                line = await self._reader.readline()
                assert line.startswith(b"INSERTED"), line

    async def cycle(self, count: int, at_once: int) -> None:
        for done in range(0, count, at_once):
            size = min(at_once, count - done)
            self._writer.write(b"reserve\r\n" * size)
            numbers: list[bytes] = []
            for _ in range(size):
                word, number, length = (await self._reader.readline()).split()
                assert word == b"RESERVED"
                await self._reader.readexactly(int(length) + 2)
                numbers.append(number)
            self._writer.write(b"".join(b"delete %b\r\n" % number for number in numbers))
            for _ in range(size):
                line = await self._reader.readline()
                assert line == b"DELETED\r\n", line


async def main(given: dict) -> None:
    clients = [Client(given["port"]) for _ in range(given["connections"])]
    for client in clients:
        await client.connect()
    each = given["count"] // len(clients)
    begun = time.perf_counter()
    await asyncio.gather(
        *(getattr(client, given["what"])(each, given["pipelined"]) for client in clients)
    )
    print(json.dumps({"per_second": each * len(clients) / (time.perf_counter() - begun)}))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
