"""Every attempt that is due, to receivers in memory."""

import asyncio

from towpath.webhooks.memory import MemoryPoster
from towpath.webhooks.running import deliver_due
from towpath.webhooks.sender import WebhookSender


def deliver(app, loop, *receivers):
    """Make every attempt that is due now; say how many."""

    async def delivered():
        poster = MemoryPoster()
        poster.receivers |= {each.url: each for each in receivers}
        async with WebhookSender(poster=poster) as sender:
            return await deliver_due(app, sender)

    return asyncio.run_coroutine_threadsafe(delivered(), loop).result()
