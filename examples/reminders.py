"""An app with one task; test_reminders.py shows how to test it."""

from towpath import App

app = App("postgresql://localhost/production")  # which no test touches
outbox: list[str] = []


@app.task(max_retries=5)
def remind(who: str) -> None:
    outbox.append(f"Dear {who}")


def sign_up(who: str) -> None:
    remind.using(delay="15m").enqueue(who)
