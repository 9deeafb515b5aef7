"""Hostile receivers in a process of their own: prints their URLs, by kind, as JSON."""

import asyncio
import json

from tests.webhooks.hostile import hostile_receivers


async def main() -> None:
    async with hostile_receivers() as receivers:
        print(json.dumps({kind: each.url() for kind, each in receivers.items()}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
