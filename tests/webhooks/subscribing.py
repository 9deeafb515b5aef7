"""Subscriptions by the store's operation, with secrets as the app seals them."""

from uuid import uuid4

from tests.webhooks.receivers import SECRET
from towpath.model.sealing import SealingKeys
from towpath.model.signing import SubscriptionSecrets
from towpath.operation import Operation
from towpath.statement import Statement
from towpath.store import subscriptions
from towpath.store.subscriptions import NewSubscription

SECOND = 10**6


def subscribe(app, url, channel="orders", headers=None, *, at_once=1, prompt=0, **options):
    given = {
        "token": uuid4(), "channel": channel, "url": url, "types": '["*"]', "filter_rule": None,
        "timeout": 15 * SECOND, "concurrency": 10, "pace": None, "burst": 1, "ordered": False,
        "waits": None, "final": None, "body": "envelope", "owner": None, "description": "",
    }  # fmt: skip
    new = NewSubscription(**{**given, **options})
    text = SubscriptionSecrets.of(SECRET, headers or {}).as_text()
    keys = SealingKeys(app.settings.webhook_key)
    made = app.run(subscriptions.create(new, lambda number: keys.seal(text, number)))
    if prompt or at_once > 1:
        prove(app, made.id, at_once=at_once, prompt=prompt)
    return made


def prove(app, id, *, at_once, prompt=0):
    """Let a subscription have shown how many deliveries at once it can take, and how soon."""
    text = """
update towpath.subscription_health set at_once = :at_once, prompt = :prompt
 where subscription_id = :id"""

    def steps():
        yield Statement("prove", {"any": text})(at_once=at_once, prompt=prompt, id=id)

    app.run(Operation("prove", steps))
