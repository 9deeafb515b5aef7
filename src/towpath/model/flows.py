"""How a job receives the results of the jobs that it waited for."""

from msgspec import Struct


class Takes(Struct, frozen=True, omit_defaults=True):
    """The argument that receives the results of the previous jobs."""

    name: str
    many: bool = False  # it receives a list of all results, not one result
