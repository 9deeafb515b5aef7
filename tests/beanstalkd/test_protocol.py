"""The parser, byte by byte."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from towpath.server.beanstalkd.protocol import BAD, BadCommand, ClientCommand, Parser

TALK = (
    b"put 1 2 3 4\r\nbody\r\nuse a\r\nput 0 0 0 0\r\n\r\nput 0 0 1 99\r\n" + b"x" * 99 + b"\r\n"
    b"put 0 0 1 2\r\nabXXreserve-with-timeout 5\r\n" + b"y" * 500 + b"\r\nrelease 1 2 3\r\nquit\r\n"
)
HEARD = [
    ClientCommand("put", (1, 2, 3), body=b"body"),
    ClientCommand("use", tube="a"),
    ClientCommand("put", (0, 0, 0)),
    BadCommand(b"JOB_TOO_BIG\r\n", "put"),
    BadCommand(b"EXPECTED_CRLF\r\n", "put"),
    ClientCommand("reserve-with-timeout", (5,)),
    BAD,
    ClientCommand("release", (1, 2, 3)),
    ClientCommand("quit"),
]


def heard(parts, most_body=10):
    parser = Parser(most_body)
    found = []
    for part in parts:
        parser.feed(part)
        while (read := parser.next()) is not None:
            found.append(read)
    return found


@given(st.lists(st.integers(0, len(TALK)), max_size=20))
def test_it_does_not_matter_how_the_bytes_arrive(cuts):
    places = [0, *sorted(cuts), len(TALK)]

    assert heard(TALK[a:b] for a, b in itertools.pairwise(places)) == HEARD


def test_byte_by_byte():
    assert heard(bytes([byte]) for byte in TALK) == HEARD


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_no_bytes_break_it(parts):
    heard(parts)


def test_it_keeps_nothing_of_an_endless_line_or_a_body_that_is_too_big():
    parser = Parser(10)
    for _ in range(100):
        parser.feed(b"z" * 10_000)
        assert parser.next() is None
        assert len(parser) <= 224
    parser.feed(b"\r\nput 0 0 1 4294967295\r\n")
    assert parser.next() == BAD
    for _ in range(100):
        assert parser.next() is None
        assert len(parser) == 0
        parser.feed(b"z" * 10_000)


def test_a_line_whose_end_is_cut_in_two_at_the_limit():
    assert heard([b"a" * 223 + b"\r", b"\nuse b\r\n"]) == [BAD, ClientCommand("use", tube="b")]


def test_a_timeout_that_no_signed_number_holds_is_refused(client):
    client.ask("reserve-with-timeout 2147483648", "BAD_FORMAT")
