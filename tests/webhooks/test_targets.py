"""URLs and custom headers of subscriptions: checks 1 to 5 and 13 of the security checklist."""

import time

import pytest

from towpath.errors import BlockedTarget, InvalidHeader, InvalidTarget
from towpath.model.addresses import AddressGuard
from towpath.model.targets import TargetUrl, custom_headers


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "called"),
    [
        ("https://example.com", "example.com", 443, "/", "https://example.com/"),
        ("HTTPS://Example.COM:443/A", "example.com", 443, "/A", "https://example.com/A"),
        ("https://a.b:8443/x?y=%2F&z=a/?b", "a.b", 8443, "/x?y=%2F&z=a/?b", None),
        ("https://a.b?x", "a.b", 443, "/?x", "https://a.b/?x"),
        ("https://a.b/../c/./%2e%2e//d", "a.b", 443, "/../c/./%2e%2e//d", None),
        ("https://8.8.8.8/", "8.8.8.8", 443, "/", None),
        ("https://[2A00:0::1]:1/", "2a00::1", 1, "/", "https://[2a00::1]:1/"),
        ("https://xn--mnchen-3ya.de/", "xn--mnchen-3ya.de", 443, "/", None),
        ("https://my_service/", "my_service", 443, "/", None),
        ("https://1.example/", "1.example", 443, "/", None),
        ("https://a.b:65535/@user:name", "a.b", 65535, "/@user:name", None),
    ],
)
def test_what_is_read_is_what_is_sent(url, host, port, path, called):
    target = TargetUrl.parse(url)

    assert (target.host, target.port, target.path) == (host, port, path)
    assert target.url == (called or url)
    assert TargetUrl.parse(target.url) == target


@pytest.mark.parametrize("scheme", ["ftp", "file", "gopher", "ws", "wss", "httpss", "javascript"])
def test_only_https_is_called(scheme):
    """Check 1."""
    for allow_http in (False, True):
        with pytest.raises(InvalidTarget, match="must begin with https://"):
            TargetUrl.parse(f"{scheme}://example.com/", allow_http=allow_http)


def test_http_needs_to_be_allowed():
    """Check 1."""
    with pytest.raises(
        InvalidTarget, match="must begin with https://, not http://; the setting `webhook_http`"
    ):
        TargetUrl.parse("http://example.com/")
    assert TargetUrl.parse("http://example.com:80/", allow_http=True).url == "http://example.com/"


MALFORMED = [
    "", "example.com", "//example.com", "https:/example.com", "https://", "https:///path",
    "https://user@example.com/", "https://user:password@example.com/", "https://@example.com/",
    "https://example.com@127.0.0.1/", "https://example.com/#fragment", "https://example.com#",
    "https://example.com\\@127.0.0.1/", "https:\\\\example.com\\", "https://example.com/\\",
    "https://example.com/a b", " https://example.com/", "https://example.com/ ",
    "https://example.com/\r\nHost: inner", "https://example.com/\0", "https://example.com/\t",
    "https://example.com/\x7f", "https://exa\nmple.com/", "https://example.com/\n",
    "https://example.com:0/", "https://example.com:/", "https://example.com:65536/",
    "https://example.com:0443/", "https://example.com:-1/", "https://example.com:4 43/",
    "https://example.com:٤٤٣/", "https://example..com/", "https://.example.com/",
    "https://example.com./", "https://-example.com/", "https://example-.com/",
    "https://münchen.de/", "https://example。com/", "https://\u2147xample.com/", "https://\u017f.com/",
    "https://example.com/ü", "https://example.com/%", "https://example.com/%zz",
    'https://example.com/"', "https://example.com/<", "https://example.com/{x}",
    "https://example.com/|", "https://example.com/^", "https://example.com/`",
    "https://[::1", "https://::1/", "https://[]/", "https://[::1]x/", "https://[fe80::1%25eth0]/",
    "https://[fe80::1%eth0]/", "https://[1.2.3.4]/", "https://[::g]/", "https://[v1.x]/",
    f"https://{'a' * 64}.com/", f"https://{'a.' * 127}com/", f"https://a.b/{'x' * 2048}",
]  # fmt: skip


@pytest.mark.parametrize("url", [*MALFORMED, None, 7, b"https://example.com/"])
def test_a_url_that_programs_read_differently_is_refused(url):
    """Check 2."""
    with pytest.raises(InvalidTarget) as refused:
        TargetUrl.parse(url, allow_http=True)
    assert "password" not in str(refused.value)


ODD = """
    127.1 0x7f000001 0x7f.1 2130706433 0177.0.0.1 127.0.0.01 1.2.3 1.2.3.4.5 256.1.1.1 0 0x
    1.2.3.0x4 example.0x7f example.1 017700000001
"""


@pytest.mark.parametrize("host", ODD.split())
def test_an_ipv4_address_has_one_form(host):
    """Check 3."""
    with pytest.raises(InvalidTarget, match="four decimal numbers"):
        TargetUrl.parse(f"https://{host}/")


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "[::1]", "[::ffff:127.0.0.1]"])
def test_an_address_in_a_url_is_judged_at_once(host):
    """Checks 3 and 4."""
    with pytest.raises(BlockedTarget, match="not a public address"):
        TargetUrl.parse(f"https://{host}/").check(AddressGuard())


@pytest.mark.parametrize("host", ["8.8.8.8", "[2001:4860:4860::8888]", "[64:ff9b::808:808]", "a.b"])
def test_a_public_address_and_a_name_pass(host):
    """Check 5."""
    TargetUrl.parse(f"https://{host}/").check(AddressGuard())


def test_a_hostile_url_is_read_in_no_time():
    before = time.process_time()
    for url in (
        "https://a.b/" + "%4" * 1018,
        "https://a.b?" + "?" * 2000 + '"',
        "https://" + "a-" * 1000,
    ):
        with pytest.raises(InvalidTarget):
            TargetUrl.parse(url)

    assert time.process_time() - before < 5


OURS = """
    webhook-id webhook-timestamp webhook-signature webhook-anything content-length host content-type
    content-encoding user-agent cookie accept-encoding towpath-subscription connection keep-alive te
    trailer transfer-encoding upgrade expect proxy-authorization proxy-connection sec-fetch-mode
"""


@pytest.mark.parametrize("name", OURS.split())
def test_our_headers_and_those_of_the_connection_cannot_be_set(name):
    """Check 13."""
    for spelled in (name, name.title(), name.upper()):
        with pytest.raises(InvalidHeader, match=f"{name!r} cannot be set"):
            custom_headers({spelled: "x"})


@pytest.mark.parametrize(
    "value", ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "a\x7fb", "a\x85b", "é", " a", "a ", 7, None]
)
def test_a_value_that_ends_its_line_is_refused(value):
    """Check 13."""
    with pytest.raises(InvalidHeader, match="'x-token'") as refused:
        custom_headers({"x-token": value})
    assert repr(value) not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\n", "ä", "a" * 101, 7])
def test_a_name_that_is_none_is_refused(name):
    """Check 13."""
    with pytest.raises(InvalidHeader, match="not the name of a header"):
        custom_headers({name: "x"})


def test_headers_are_bounded_and_unique():
    assert custom_headers({"X-Token": "a b", "Authorization": "Basic x"}) == {
        "x-token": "a b",
        "authorization": "Basic x",
    }
    for headers in ({f"x-{n}": "" for n in range(21)}, {"x": "v" * 8192}):
        with pytest.raises(InvalidHeader, match="at most 20 headers"):
            custom_headers(headers)
    with pytest.raises(InvalidHeader, match="'x' is there twice"):
        custom_headers({"x": "1", "X": "2"})
