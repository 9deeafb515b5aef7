"""Scripted answers: what a receiver sends, and how the attempt ends.

A group says what follows the bytes (`keep`: the connection stays open, `close` or `reset`), the
error of the attempt (None: delivered) and its status.
"""


def head(status="200 OK", *fields, version="1.1", body=b"ok"):
    lines = [f"HTTP/{version} {status}", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def chunked(body, *fields):
    return head("200 OK", "Transfer-Encoding: chunked", *fields, body=body)


def length(text, *fields, body=b"ok"):
    return head("200 OK", f"Content-Length: {text}", *fields, body=body)


LENGTH = "Content-Length: 2"
NOTHING = "Content-Length: 0"
PLAIN = length(2)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"


GROUPS = {
    ("keep", None, 200): {
        "a length": PLAIN,
        "no reason": head("200", LENGTH),
        "an empty reason": head("200 ", LENGTH),
        "chunks": chunked(b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n"),
        "an extension of a chunk": chunked(b"2;a=b\r\nok\r\n0\r\n\r\n"),
        "trailers": chunked(b"2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"),
        "HTTP/1.0, kept": head("200 OK", LENGTH, "Connection: keep-alive", version="1.0"),
        "100 before it": CONTINUE + PLAIN,
        "102 and 103 before it": b"HTTP/1.1 102 Processing\r\n\r\n" + HINT + PLAIN,
        "a hundred hints before it": HINT * 100 + PLAIN,
        "an answer behind the answer": PLAIN + head("500 Oh", LENGTH, body=b"no"),
        "rubbish behind the answer": PLAIN + b"\0\0\0",
        "gzip that is none": length(2, "Content-Encoding: gzip"),
        "a transfer encoding more": head(
            "200 OK", "Transfer-Encoding: gzip, chunked", body=b"2\r\nok\r\n0\r\n\r\n"
        ),
        "a value that is not ASCII": length(2, "X-A: \xff"),
        "an empty body": length(0, body=b""),
        "a head of 60 KiB": length(2, *(f"X-{n}: {'v' * 6000}" for n in range(10))),
        "a large body": length(100_000, body=b"x" * 100_000),
    },
    ("close", None, 200): {
        "a body that the end of the connection ends": head(),
        "HTTP/1.0": head("200 OK", LENGTH, version="1.0"),
        "HTTP/1.0 without a length": head(version="1.0"),
        "Connection: close": length(2, "Connection: close"),
        "a folded field": length(2, "X-A: b", "\tc"),
        "lines that end with LF": PLAIN.replace(b"\r\n", b"\n"),
        "chunked twice": head(
            "200 OK", "Transfer-Encoding: chunked, chunked", body=b"2\r\nok\r\n0\r\n\r\n"
        ),
        "HTTP/2.0": head("200 OK", LENGTH, version="2.0"),
    },
    ("keep", None, 201): {"201": head("201 Created", LENGTH)},
    ("keep", None, 204): {
        "no body": head("204 No Content", body=b""),
        "204 with a body": head("204 No Content", LENGTH),
    },
    ("keep", None, 299): {"299": head("299 Fine", LENGTH)},
    ("keep", "http_301", 301): {"301": head("301 Moved", "Location: http://127.0.0.1/", LENGTH)},
    ("keep", "http_304", 304): {
        "304 with a length": head("304 Not Modified", LENGTH, body=b""),
        "304 with a body": head("304 Not Modified", LENGTH),
    },
    ("keep", "http_400", 400): {"400": head("400 Bad Request", LENGTH)},
    ("keep", "http_410", 410): {"410": head("410 Gone", NOTHING, body=b"")},
    ("keep", "http_429", 429): {"429": head("429 Slow Down", "Retry-After: 7", LENGTH)},
    ("close", "http_503", 503): {"503": head("503 Unavailable", LENGTH)},
    ("keep", "http_999", 999): {"999": head("999 Whatever", LENGTH)},
    ("close", "bad_answer", 200): {
        "shorter than it says": length(9),
        "chunks that end early": chunked(b"5\r\nok"),
        "no last chunk": chunked(b"2\r\nok\r\n"),
        "a size of a chunk that is none": chunked(b"zz\r\nok\r\n0\r\n\r\n"),
        "a negative chunk": chunked(b"-2\r\nok\r\n0\r\n\r\n"),
        "a huge chunk": chunked(b"ffffffffffffffffff\r\nok"),
        "a chunk that is longer than it says": chunked(b"2\r\nokay\r\n0\r\n\r\n"),
    },
    ("keep", "bad_answer", 200): {"a chunk that is wrong, then silence": chunked(b"zz\r\n")},
    ("reset", "bad_answer", 200): {"a reset within the body": length(9)},
    ("keep", "bad_answer", 101): {
        "101": head("101 Switching", "Upgrade: x", "Connection: upgrade", body=b""),
        "101 without an upgrade": head("101 Switching", body=b""),
    },
    ("keep", "bad_answer", None): {
        "the same length twice": length(2, LENGTH),
        "two lengths": length(2, "Content-Length: 3"),
        "a list of lengths": length("2, 3"),
        "a negative length": length(-2),
        "a length with a sign": length("+2"),
        "a length in hex": length("0x2"),
        "a huge length": length("9" * 30),
        "a length and chunks": chunked(b"2\r\nok\r\n0\r\n\r\n", LENGTH),
        "a space before a colon": length(2, "X-A : b"),
        "a field without a colon": length(2, "nonsense", LENGTH),
        "a field without a name": length(2, ": b"),
        "a NUL in a value": length(2, "X-A: b\0c"),
        "a CR within a line": length(2, "X-A: b\rc"),
        "a status of two digits": head("20 OK", LENGTH),
        "a status of four digits": head("2000 OK", LENGTH),
        "a status that is no number": head("abc OK", LENGTH),
        "HTTP/0.9": b"ok\n",
        "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
        "an alert of TLS": b"\x15\x03\x01\x00\x02\x02\x28",
        "101 fields": length(2, *(f"X-{n}: v" for n in range(101))),
    },
    ("close", "reset", None): {
        "nothing": b"",
        "half a status line": b"HTTP/1.1 2",
        "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
        "a head without its end": head()[:-4],
        "100 and no more": CONTINUE,
    },
    ("reset", "reset", None): {"a reset": b"", "a reset within the head": b"HTTP/1.1 200 OK\r\n"},
    ("keep", "answer_too_large", None): {
        "a head of 70 KiB": length(2, *(f"X-{n}: {'v' * 7000}" for n in range(10))),
        "a field of 9 KB": length(2, f"X-A: {'v' * 9000}"),
        "a name of 9 KB": length(2, f"{'n' * 9000}: v"),
        "a reason of 9 KB": head("200 " + "x" * 9000, LENGTH),
        "hints without end": HINT * 2_000,
        "more than a hundred hints before it": HINT * 101 + PLAIN,
        "empty lines without end": b"\r\n" * 40_000,
    },
}
SCRIPTS = [
    (name, answer, *outcome)
    for outcome, answers in GROUPS.items()
    for name, answer in answers.items()
]
