"""Targets of webhooks: the URL, read once by one strict grammar, and the custom headers.

A URL that two programs read differently slips past a check. So the parts that are checked are the
parts that are sent, and a form that programs read differently is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any, Final, Self

from towpath.errors import BlockedTarget, InvalidHeader, InvalidTarget
from towpath.model.addresses import Address, AddressGuard

MOST_URL: Final = 2_048
MOST_NAME: Final = 253
MOST_PORT: Final = 65_535
PORTS: Final = {"https": 443, "http": 80}
_PATH: Final = r"A-Za-z0-9\-._~!$&'()*+,;=:@/"
_ESCAPE: Final = "%[0-9A-Fa-f]{2}"
_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
    rf"(?P<path>/(?:[{_PATH}]|{_ESCAPE})*)?"
    rf"(?P<query>\?(?:[{_PATH}?]|{_ESCAPE})*)?"
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")  # a last label that makes a host IPv4

MOST_HEADERS: Final = 20
MOST_HEADER_BYTES: Final = 8 * 1024  # of all names and values
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_OUR_PREFIXES: Final = ("webhook-", "towpath-", "proxy-", "sec-")
_OUR_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)


@dataclass(frozen=True, slots=True)
class TargetUrl:
    """Where a subscription sends to."""

    scheme: str
    host: str  # lower case; an address in its shortest form, without brackets
    port: int
    path: str  # with the query, as it is sent
    address: Address | None  # of a host that is no name

    @classmethod
    def parse(cls, url: Any, *, allow_http: bool = False) -> Self:
        """Read a URL; raise InvalidTarget if it cannot be called."""
        if not isinstance(url, str) or len(url) > MOST_URL:
            raise _refused(f"it is not text of at most {MOST_URL:,} characters")
        match = _URL.fullmatch(url)
        if match is None:
            raise _refused(
                "use https://host/path in ASCII, without user, fragment, backslash and spaces; "
                "write other characters as %…, other scripts in the host as xn--…"
            )
        scheme = match["scheme"].lower()
        if scheme not in PORTS or (scheme == "http" and not allow_http):
            allowed = "https:// or http://" if allow_http else "https://"
            way = "" if scheme not in PORTS else "; the setting `webhook_http` allows that"
            raise _refused(f"it must begin with {allowed}, not {scheme[:20]}://{way}")
        port = int(match["port"] or PORTS[scheme])
        if port > MOST_PORT:
            raise _refused(f"there is no port {port}")
        host, address = _six(match["six"]) if match["six"] else _host(match["name"].lower())
        return cls(scheme, host, port, (match["path"] or "/") + (match["query"] or ""), address)

    @property
    def authority(self) -> str:
        """The host, with the port where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL as it is called."""
        return f"{self.scheme}://{self.authority}{self.path}"

    def check(self, guard: AddressGuard) -> None:
        """Raise BlockedTarget if the host is an address that may not be called."""
        if self.address is not None and not guard.admits(self.address):
            msg = f"{self.host} is not a public address; `webhook_allow` can allow its network"
            raise BlockedTarget(msg)


def _six(text: str) -> tuple[str, Address]:
    try:
        address = IPv6Address(text)
    except AddressValueError as error:
        raise _refused("the host in brackets is no IPv6 address") from error
    return address.compressed, address


def _host(name: str) -> tuple[str, Address | None]:
    labels = name.split(".")
    if len(name) > MOST_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise _refused("its host is not a name: letters, digits and hyphens between single dots")
    if not _NUMBER.fullmatch(labels[-1]):
        return name, None
    try:
        address = IPv4Address(name)
    except AddressValueError as error:
        raise _refused("write an IPv4 address as four decimal numbers") from error
    return name, address


def _refused(reason: str) -> InvalidTarget:
    # The URL is not repeated: it may hold a password.
    return InvalidTarget(f"the URL cannot be called: {reason}")


def custom_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the custom headers of a subscription, in lower case; raise InvalidHeader."""
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            msg = f"{str(name)[:100]!r} is not the name of a header"
            raise InvalidHeader(msg)
        lower = name.lower()
        if lower in _OUR_HEADERS or lower.startswith(_OUR_PREFIXES):
            msg = f"the header {lower!r} cannot be set: Towpath or the connection decides it"
            raise InvalidHeader(msg)
        if lower in checked:
            msg = f"the header {lower!r} is there twice"
            raise InvalidHeader(msg)
        # The value is not repeated: it is often a credential.
        if not isinstance(value, str) or not _VALUE.fullmatch(value) or value != value.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            msg = f"the value of the header {lower!r} is not ASCII text without control characters"
            raise InvalidHeader(msg)
        checked[lower] = value
    size = sum(len(name) + len(value) for name, value in checked.items())
    if len(checked) > MOST_HEADERS or size > MOST_HEADER_BYTES:
        msg = f"at most {MOST_HEADERS} headers with {MOST_HEADER_BYTES:,} bytes in all can be set"
        raise InvalidHeader(msg)
    return checked
