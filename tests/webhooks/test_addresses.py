"""Which addresses webhooks may call: check 3, 4, 5 and 11 of the security checklist."""

from ipaddress import IPv4Network, ip_address

import pytest

from towpath.errors import Invalid
from towpath.model.addresses import AddressGuard, is_public, networks_of

REFUSED_4 = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1
    127.255.255.254 168.63.129.16 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192
    192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.168.0.1 192.175.48.1 198.18.0.1
    198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
"""
REFUSED_6 = """
    :: ::1 ::7f00:1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:8.8.8.8
    ::ffff:0:7f00:1 ::5efe:7f00:1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::a00:1 64:ff9b:1::1
    64:ff9b:1::808:808 100::1 100:0:0:1::1 1::1 2001::1 2001:0:53aa:64c::1 2001:2::1 2001:10::1
    2001:20::1 2001:1ff::1 2001:db8::1 2002:7f00:1:: 2002:808:808:: 2620:4f:8000::1 3fff::1
    3fff:fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1
    2a00:1450:4001::5efe:7f00:1 2a00:1450:4001::200:5efe:a00:1 2a00:1450:4001::1%eth0
"""
ACCEPTED = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 168.63.129.15 172.15.255.255
    172.32.0.1 192.0.1.1 192.167.255.255 198.17.255.255 198.20.0.1 223.255.255.255
    2001:4860:4860::8888 2001:200::1 2606:4700:4700::1111 2a00:1450:4001:830::200e 2003::1
    64:ff9b::808:808 3ffe::1
"""


@pytest.mark.parametrize("text", (REFUSED_4 + REFUSED_6).split())
def test_what_is_not_known_to_be_public_is_refused(text):
    """Checks 3 and 4."""
    assert not AddressGuard().admits(ip_address(text))


@pytest.mark.parametrize("text", ACCEPTED.split())
def test_a_public_address_may_be_called(text):
    """Check 5."""
    assert AddressGuard().admits(ip_address(text))


def test_python_alone_would_let_many_of_them_through():
    """The reason for a classifier of our own; if this ever fails, it may go."""
    assert sum(ip_address(text).is_global for text in (REFUSED_4 + REFUSED_6).split()) > 5


def test_the_edges_of_every_network_that_is_set_apart():
    for network in (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12")):
        assert not is_public(network[0])
        assert not is_public(network[-1])
        assert is_public(network[0] - 1)
        assert is_public(network[-1] + 1)


@pytest.mark.parametrize(
    ("address", "admitted"),
    [
        ("127.0.0.1", True),
        ("fd00::7", True),
        ("8.8.8.8", True),
        ("10.0.0.1", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("fd00::7%eth0", False),
    ],
)
def test_an_allowed_network_is_called_in_its_own_form_only(address, admitted):
    """Check 11."""
    guard = AddressGuard(networks_of("127.0.0.0/8, fd00::/8"))

    assert guard.admits(ip_address(address)) is admitted


@pytest.mark.parametrize("text", ["10.0.0.1/8", "localhost", "10.0.0.0/33", "10.0.0.0/8;::/0"])
def test_a_list_of_networks_that_cannot_be_read_is_refused(text):
    with pytest.raises(Invalid, match="separated by commas"):
        networks_of(text)


def test_no_network_is_allowed_by_default():
    """Check 11."""
    assert networks_of("") == AddressGuard().allowed == ()
