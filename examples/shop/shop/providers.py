"""Stand for the HTTP calls to a payment provider and to a carrier.

A job may run twice, as when its worker dies after the call. So each call carries an idempotency
key: with the same key again, a provider repeats its answer and does nothing more.
"""


class CardDeclined(Exception):
    """The bank says no; it will say so again."""


def take_payment(card: str, cents: int, *, idempotency_key: str) -> str:
    if card == "no-money":
        raise CardDeclined(f"{cents / 100:.2f} is more than there is")
    return f"payment-{idempotency_key}"


def refund(payment: str) -> None:
    pass


def book_parcel(*, idempotency_key: str) -> str:
    return f"parcel-{idempotency_key}"
