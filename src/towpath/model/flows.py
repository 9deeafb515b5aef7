"""How a job takes the results of those that it waited for."""

from msgspec import Struct


class Takes(Struct, frozen=True, omit_defaults=True):
    """Which argument gets what the jobs before it have returned."""

    name: str
    many: bool = False  # a list of all results, not the only one
