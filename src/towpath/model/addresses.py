"""IP addresses that webhooks may call. What is not known to be public is refused.

`ipaddress.is_global` is not used: it calls public what leads back to this machine or its network,
such as 64:ff9b::7f00:1 (127.0.0.1 behind NAT64), and its answers differ between versions of Python.
"""

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_network,
)
from typing import Final

from towpath.errors import Invalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

SET_APART_4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by the customers of a provider
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure to its machines
        "169.254.0.0/16",  # link-local, with the metadata of cloud machines
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocols of the IETF
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
GLOBAL_6: Final = IPv6Network("2000::/3")  # all that is assigned for global unicast
SET_APART_6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocols of the IETF: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: leads to any IPv4 address
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = 0x00005EFE  # the upper half of the interface part, in front of an IPv4 address
_NOT_UNIVERSAL: Final = 0x02000000  # the bit of it that may be set or not


class AddressGuard:
    """Says which addresses may be called: public ones, and those of the allowed networks."""

    def __init__(self, allowed: Iterable[Network] = ()) -> None:
        self.allowed = tuple(allowed)

    def admits(self, address: Address) -> bool:
        """Say whether the address may be called."""
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            return False  # a scope names an interface of this machine
        return is_public(address) or any(address in network for network in self.allowed)


def is_public(address: Address) -> bool:
    """Say whether an address is global unicast and not set apart for something else."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in SET_APART_4)
    if address in NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    interface = int(address) >> 32 & 0xFFFFFFFF
    return (
        address in GLOBAL_6
        and interface & ~_NOT_UNIVERSAL != _ISATAP
        and not any(address in network for network in SET_APART_6)
    )


def networks_of(text: str) -> tuple[Network, ...]:
    """Read a list of networks such as `127.0.0.0/8, fd00::/8`; raise Invalid if it is none."""
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        msg = f"{error}; use networks such as 10.1.0.0/16, separated by commas"
        raise Invalid(msg) from error
