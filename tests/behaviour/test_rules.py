"""Access rules: PocketBase's filter language, over the request and the job."""

import pickle
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from towpath.errors import Invalid, InvalidRule
from towpath.model.access import Access, ChannelAccess
from towpath.model.rules import MOST_PAIRS, Names, Rule

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
NOW = datetime(2026, 2, 15, 17, 30, 5, tzinfo=UTC)  # a Sunday
NOBODY = {"auth": {}, "method": "GET"}
ANN = {
    "auth": {"id": "ann", "email": "Ann@Example.com", "roles": ["editor", "admin"], "level": 5},
    "query": {"page": "12", "q": "%", "none": ""},
    "body": {"tags": ["a", "b"], "empty": [], "nothing": None, "zero": 0, "yes": True},
    "headers": {"x_token": "abc"},
    "method": "POST",
}
JOB = {
    "topic": "mail",
    "priority": 10,
    "runAt": "2026-02-15T18:30:05+01:00",
    "cancelRequested": False,
    "payload": {
        "userId": "ann",
        "items": [{"id": 1, "tags": ["x", "y"]}, {"id": 2, "tags": []}],
        "same": [{"id": 1}, {"id": 1}],
        "gap": [{"id": 1}, {}],
        "nested": [[1, 2]],
        "odd_text": "50% of a\\b_c",
    },
}


def allows(text, request=ANN, job=JOB, now=NOW):
    return Rule.parse(text).allows(Names(request=request, job=job), now)


# The three rules of the document


@pytest.mark.parametrize("text", ["", "  \n\t", "// nobody", "// nobody\n // really"])
def test_an_empty_rule_is_for_superusers_only(text):
    """US9-1"""
    rule = Rule.parse(text)

    assert rule.is_closed
    assert not rule.is_public
    assert not rule.allows(Names(request=ANN, job=JOB), NOW)


@pytest.mark.parametrize("text", ["true", "(true)", "TRUE", "true // for now"])
def test_true_is_for_everybody(text):
    """US9-2"""
    rule = Rule.parse(text)

    assert rule.is_public
    assert not rule.is_closed
    assert rule.allows(Names(), NOW)


def test_a_login_is_asked_for():
    """US9-3"""
    rule = Rule.parse("@request.auth.id != ''")

    assert rule.allows(Names(request=ANN), NOW)
    assert not rule.allows(Names(request=NOBODY), NOW)
    assert not rule.allows(Names(), NOW)
    assert (rule.is_closed, rule.is_public, rule.needs_job) == (False, False, False)


def test_false_is_for_nobody_yet_not_the_empty_rule():
    rule = Rule.parse("false")

    assert (rule.is_closed, rule.is_public) == (False, False)
    assert not rule.allows(Names(request=ANN), NOW)


def test_a_rule_over_the_job_says_so():
    assert Rule.parse("true && (1 = 2 || @job.topic = 'x')").needs_job
    assert not Rule.parse("@request.body.job = '@job.topic'").needs_job


# An owner


OWNER = "@job.payload.userId = @request.auth.id"


def test_an_owner_sees_the_own_job_and_nobody_else_does():
    bob = {"auth": {"id": "bob"}}

    assert allows(OWNER)
    assert not allows(OWNER, request=bob)
    assert not allows(OWNER, request=NOBODY)


@pytest.mark.parametrize("nobody", [NOBODY, {}, {"auth": {"id": ""}}, {"auth": {"id": None}}])
@pytest.mark.parametrize("payload", [{}, {"userId": ""}, {"userId": None}, {"userId": []}, None, 7])
@pytest.mark.parametrize("sign", ["=", "?=", "!=", "?!=", ">=", "<=", "~", "!~"])
def test_nobody_is_not_the_owner_of_a_job_without_one(nobody, payload, sign):
    """Two empty fields are neither equal nor unequal, so that strangers do not match a gap."""
    job = {"payload": payload}

    assert not allows(f"@job.payload.userId {sign} @request.auth.id", nobody, job)
    assert not allows(f"@request.auth.id:lower {sign} @job.payload.userId:each", nobody, job)


def test_that_two_fields_are_empty_can_be_said():
    assert allows("@job.payload.parent = '' && @request.body.parent = null")


# What is written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true || true && false", True),
        ("false && true || true", True),
        ("(true || true) && false", False),
        ("false && (true || true)", False),
        ("true || false && false || false", True),
    ],
)
def test_and_binds_tighter_than_or(text, expected):
    """PocketBase hands both to SQL side by side, where AND binds tighter."""
    assert allows(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        "@request.auth.id='ann'",
        '@request.auth.id="ann"',
        "  @request.auth.id\n=\t'ann'  ",
        "// who?\n@request.auth.id = // is\n 'ann' // this",
        r"'it\'s' = " + '"it\'s"',
        r"'a\\b' = 'a\\b' && 'a\\' != 'a' && '\\' != ''",
        "'//' = '//' && '(' != ')'",
        "-1.50 = -1.5 && 7 = 7.0 && -3 < -2",
        "null = NULL && null = ''",
        "@request.context = 'default' && @request.method = 'POST'",
        "@request.headers.x_token = 'abc'",
        "((((true))))",
    ],
)
def test_these_hold(text):
    assert allows(text)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("@request.auth.id", 16, "expected an operator .* found the end"),
        ("@request.auth.id = ", 19, "expected a value .* found the end"),
        ("@request.auth.id = 'x", 19, "no closing '"),
        ("@request.auth.id = 'x' @job.y = 1", 23, "expected && or || or the end, found '@job.y'"),
        ("@job.x == 1", 8, "expected a value"),
        ("@job.x = 1 & true", 11, "use && to join"),
        ("@job.x = 1 && ", 14, "expected a value"),
        ("(true", 5, r"expected && or || or \), found the end"),
        ("true)", 4, "expected && or || or the end, found '\\)'"),
        ("()", 1, "expected a value"),
        ("null", 4, "expected an operator"),
        ("'true'", 6, "expected an operator"),
        ("title = 'x'", 0, "write @job.payload.title"),
        ("1 = title.x:lower", 4, "write @job.payload.title.x"),
        ("@collection.users.id = 'x'", 0, "use @job.x"),
        ("@request.foo = 1", 0, "unknown name @request.foo; known names: @request.auth"),
        ("@request.auth = 1", 0, "write @request.auth.x"),
        ("@request.method.x = 1", 0, "@request.method has no fields"),
        ("@request.headers.X_Token = 1", 0, "lower case"),
        ("@request.headers.x-token = 1", 18, "in place of the - of a header"),
        ("@request = 1", 0, "@request lacks the name of a field"),
        ("@job = 1", 0, "@job lacks the name of a field"),
        ("@job..x = 1", 0, "@job.x"),
        ("@tomorow > 1", 0, "unknown name @tomorow; known names: .* @tomorrow"),
        ("@now:lower = 1", 0, "unknown name @now:lower"),
        ("@job.x:changed = true", 6, "unknown modifier :changed"),
        ("@job.x:upper = 'X'", 6, "unknown modifier :upper; known modifiers, .*: :isset"),
        ("@job.x:lower:each = 'X'", 6, "unknown modifier :lower:each"),
        ("@job.x: = 'X'", 6, "unknown modifier :;"),
        ("geoDistance(1, 2) < 3", 13, "no functions"),
        ("strftime('x') = 3", 0, r"unknown function strftime\(\)"),
        ("@job.x ~ ''", 9, "a text to search for after ~"),
        ("@job.x ?!~ 5", 11, r"a text to search for after \?!~"),
        ("@job.x ! 5", 7, "unexpected '!'"),
        ("@job.x = 'a\0'", 11, "cannot be stored"),
    ],
)
def test_a_bad_rule_is_refused_with_its_position(text, position, message):
    with pytest.raises(InvalidRule, match=message) as refused:
        Rule.parse(text)

    assert refused.value.position == position
    assert refused.value.code == "invalid_rule"
    assert str(refused.value).startswith(f"position {position}: ")
    assert isinstance(refused.value, Invalid)
    assert pickle.loads(pickle.dumps(refused.value)).position == position  # noqa: S301 - our own


def test_a_rule_is_not_endless():
    Rule.parse("true" + " " * 3_996)
    with pytest.raises(InvalidRule, match="at most 4,000") as refused:
        Rule.parse("true" + " " * 3_997)
    assert refused.value.position == 4_000


def test_parentheses_are_not_bottomless():
    assert allows("(" * 50 + "true" + ")" * 50)
    with pytest.raises(InvalidRule, match="at most 50 levels") as refused:
        Rule.parse("(" * 51 + "true" + ")" * 51)
    assert refused.value.position == 50
    assert allows(" && ".join(["(true)"] * 200))  # one after the other is not deep


# How values compare


@pytest.mark.parametrize(
    "text",
    [
        # empty
        "@request.auth.missing = '' && @request.auth.missing = null && @job.x.y.z = null",
        "@request.query.none = null && @request.body.nothing = ''",
        "@request.auth.missing != 'x' && @request.auth.id != null",
        "@request.body.zero != '' && @job.cancelRequested != ''",
        # numbers
        "@request.query.page = 12 && @request.query.page > 9 && @job.priority <= 10.0",
        "'12' = 12.0 && '-1.5' < -1 && '012' != 12 && '1e1' != 10 && ' 1' != 1",
        "'10' < '9'",  # two texts
        # truths
        "@request.body.yes = true && @job.cancelRequested = false",
        "true != 1 && 1 != true && false != 0 && true != 'true' && false != '' && false != null",
        # instants
        "@job.runAt = @now && @job.runAt = '2026-02-15 17:30:05.000Z'",
        "@now > '2026-02-15' && @now < '2026-02-15T17:30:06Z' && @now != 'soon'",
        "'2026-02-15T18:30:05+01:00' = '2026-02-15T17:30:05Z'",
        "'2026-02-30' < '2026-03-01' && '2026-02-30' != @now",  # no such day: a text
        # texts
        "'a' < 'b' && 'B' < 'a' && 'a' != 'A'",
        # objects
        "@job.payload != '' && @job.payload != 1 && @job.payload.nested != 1",
    ],
)
def test_these_comparisons_hold(text):
    assert allows(text)


NONSENSE = [
    *(f"@request.auth.missing {sign} 'a'" for sign in ["<", "<=", ">", ">=", "~", "!~"]),
    *(f"'a' {sign} @request.auth.missing" for sign in ["<", "<=", ">", ">=", "~", "!~"]),
    *(f"'' {sign} ''" for sign in ["<=", ">="]),
    *(f"true {sign} false" for sign in ["<", "<=", ">", ">="]),
    *(f"true {sign} 1" for sign in ["=", "<", "<=", ">", ">="]),
    *(f"@job.payload {sign} 'a'" for sign in ["=", "<", "<=", ">", ">=", "~", "!~"]),
    *(f"@now {sign} 1" for sign in ["=", "<", "<=", ">", ">="]),
    *(f"5 {sign} 'five'" for sign in ["=", "<", "<=", ">", ">=", "~", "!~"]),
    *(f"@now {sign} 'never'" for sign in ["=", "<", "<=", ">", ">=", "~", "!~"]),
]


@pytest.mark.parametrize("text", NONSENSE)
def test_what_cannot_be_compared_is_false(text):
    assert not allows(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@request.auth.email ~ 'example'", True),
        ("@request.auth.email !~ 'example'", False),
        ("@request.auth.email ~ '%@example.com'", True),
        ("@request.auth.email ~ 'example%'", False),
        ("@request.auth.email ~ 'ann%com'", True),
        ("@request.auth.email ~ 'a%n%@%m'", True),
        ("@request.auth.email ~ '%'", True),
        ("'aba' ~ 'ab%ba'", False),  # the two do not overlap
        ("'abba' ~ 'ab%ba'", True),
        ("'xaxbx' ~ '%b%a%'", False),
        (r"@job.payload.odd_text ~ '50\%'", True),
        (r"@job.payload.odd_text ~ '5\%'", False),
        (r"@job.payload.odd_text ~ '%\\\\b%'", True),
        (r"@job.payload.odd_text ~ '%a_b%'", False),  # an underscore is an underscore
        ("@job.payload.odd_text ~ 'b_c'", True),
        ("@job.payload.odd_text ~ @request.query.q", True),
        ("@request.auth.email ~ @request.query.q", False),  # a caller has no wildcards
        ("@request.auth.email !~ @request.query.q", True),
        ("'KELVIN' ~ '\u212aelvin'", False),  # the sign for kelvin is not a K
        ("'\u00c4rger' ~ '\u00c4R'", True),
        ("@job.priority ~ '1'", False),  # only texts contain
    ],
)
def test_contains(text, expected):
    assert allows(text) is expected


def test_a_pattern_takes_no_longer_than_the_text_is_long():
    """With a naive regular expression this would take until the end of the world."""
    rule = Rule.parse(f"@job.payload ~ '{'%a' * 900}%b'")

    assert not rule.allows(Names(job={"payload": "a" * 100_000}), NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@request.auth.roles = 'admin'", False),
        ("@request.auth.roles ?= 'admin'", True),
        ("@request.auth.roles:each ?= 'admin'", True),
        ("@request.auth.roles != 'guest'", True),
        ("@request.auth.roles != 'admin'", False),
        ("@request.auth.roles ?!= 'admin'", True),
        ("'admin' ?= @request.auth.roles", True),
        ("@request.auth.roles ~ '%i%'", True),
        ("@job.payload.items.id > 0", True),
        ("@job.payload.items.id > 1", False),
        ("@job.payload.items.id ?> 1", True),
        ("@job.payload.items.id ?>= 3", False),
        ("@job.payload.same.id = 1", True),
        ("@job.payload.gap.id = 1", False),  # one has none
        ("@job.payload.items.1.id = 2", True),
        ("@job.payload.items.2.id = ''", True),
        ("@job.payload.items.tags ?= 'y'", True),
        ("@job.payload.items.tags ?= ''", True),
        ("@job.payload.items.tags.0 ?= 'x'", True),
        ("@request.body.tags ?= @job.payload.items.tags", False),
        ("@request.body.tags ?!= @job.payload.items.tags", True),
        ("@request.body.tags != @job.payload.items.tags", True),
        ("@request.body.tags = @request.body.tags", False),  # each with each
        ("@request.body.tags ?= @request.body.tags", True),
        # An empty list is one empty item, as in a left join.
        ("@request.body.empty = 'a'", False),
        ("@request.body.empty ?= 'a'", False),
        ("@request.body.empty != 'a'", True),
        ("@request.body.empty = ''", True),
        ("@request.body.empty != ''", False),
    ],
)
def test_lists(text, expected):
    assert allows(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@request.body.nothing:isset = true", True),
        ("@request.body.role:isset = false", True),
        ("@request.body.role.deep:isset = false", True),
        ("@request.auth.id:isset = true", True),
        ("@job.topic:isset = true && @job.nope:isset = false", True),
        ("@job.payload.items.1:isset = true && @job.payload.items.2:isset = false", True),
        ("@job.payload.gap.id:isset = true && @job.payload.gap.x:isset = false", True),
        ("@request.body.tags:length = 2 && @request.body.empty:length = 0", True),
        ("@request.body.role:length = 0 && @job.topic:length = 1", True),
        ("@request.auth.email:lower = 'ann@example.com'", True),
        ("@request.auth.email:lower = 'Ann@Example.com'", False),
        ("@request.auth.level:lower = 5", True),
        ("@job.payload.items.tags:lower ?= 'x'", True),
    ],
)
def test_modifiers(text, expected):
    assert allows(text) is expected


def test_a_scope_may_know_only_the_fields_themselves():
    class Flat:
        def value(self, root, path):
            return {"request": {("auth", "id"): "ann"}}[root].get(path)

    assert Rule.parse("@request.auth.id = 'ann'").allows(Flat(), NOW)
    assert Rule.parse("@request.auth.id:isset = true").allows(Flat(), NOW)
    assert Rule.parse("@request.auth.name:isset = false").allows(Flat(), NOW)


def test_a_comparison_with_too_many_items_is_false():
    side = int(MOST_PAIRS**0.5)
    job = {"all": [7] * MOST_PAIRS, "more": [7] * (MOST_PAIRS + 1), "side": [7] * side}

    assert allows("@job.all = 7 && @job.side = @job.side", job=job)
    assert not allows("@job.more ?= 7", job=job)
    assert not allows("@job.more != 8", job=job)
    assert not allows("@job.side ?= @job.more", job=job)


@pytest.mark.parametrize(
    "text",
    [
        "@second = 5 && @minute = 30 && @hour = 17 && @weekday = 0",
        "@day = 15 && @month = 2 && @year = 2026",
        "@now = '2026-02-15T17:30:05Z'",
        "@yesterday = '2026-02-14T17:30:05Z' && @tomorrow = '2026-02-16T17:30:05Z'",
        "@todayStart = '2026-02-15' && @todayEnd = '2026-02-15T23:59:59.999999Z'",
        "@monthStart = '2026-02-01' && @monthEnd = '2026-02-28T23:59:59.999999Z'",
        "@yearStart = '2026-01-01' && @yearEnd = '2026-12-31T23:59:59.999999Z'",
    ],
)
@pytest.mark.parametrize("hours", [0, 11, -5])
def test_macros_are_in_utc(text, hours):
    assert allows(text, now=NOW.astimezone(timezone(timedelta(hours=hours))))


@pytest.mark.parametrize(("month", "last"), [(1, 31), (2, 28), (4, 30), (12, 31)])
def test_months_end(month, last):
    now = datetime(2026, month, 31 if last == 31 else 1, tzinfo=UTC)

    assert allows(f"@monthEnd = '2026-{month:02}-{last}T23:59:59.999999Z'", now=now)


def test_datetimes_compare_with_texts():
    job = {"runAt": NOW, "naive": NOW.replace(tzinfo=None), "edge": datetime.min}  # noqa: DTZ901

    assert allows("@job.runAt = @now && @job.naive = @job.runAt && @job.edge < @now", job=job)
    assert allows("@job.runAt >= '2026-02-15T17:30:05Z'", job=job)


def test_a_lazy_job_is_asked_for_once_and_only_if_needed():
    asked = []
    names = Names(request=ANN, job=lambda: asked.append(1) or JOB)

    assert Rule.parse("@request.auth.id = 'ann' || @job.topic = 'x'").allows(names, NOW)
    assert asked == []
    assert Rule.parse("@job.topic = 'mail' && @job.priority = 10").allows(names, NOW)
    assert asked == [1]


def test_deep_data_is_no_trouble():
    deep = "x"
    for _ in range(1_500):
        deep = [{"a": deep}]

    assert allows(f"@job{'.a' * 1_500} = 'x'", job=deep)
    assert not allows(f"@job{'.a' * 1_499} = @job{'.a' * 400}", job=deep)


# The page for users


def table(title):
    """The rows of the table under a heading of the page, as lists of cells."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+) \|$", section, re.MULTILINE)[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in rows]


def code(cell):
    return cell.strip("`").replace(r"\|", "|")


DATA = [msgspec.json.decode(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize(("rule", "who", "verdict"), table("Examples"))
def test_the_examples_of_the_page_are_true(rule, who, verdict):
    people, job = DATA

    assert allows(code(rule), {**people[who], "method": "POST"}, job) is (verdict == "yes")


CHANNELS = [row for row in table("Channels") if len(row) == 5 and not row[0].startswith("-")]


@pytest.mark.parametrize(("prefix", "rule", "name", "who", "verdict"), CHANNELS[1:])
def test_the_examples_of_channels_are_true(prefix, rule, name, who, verdict):
    people, job = DATA
    access = Access(channels={code(prefix): ChannelAccess(subscribe_rule=code(rule))})
    text, rest = access.channel_rule("subscribe", code(name))
    channel = {"name": code(name), "rest": rest}
    names = Names(request=people[who], job=job, channel=channel)

    assert Rule.parse(text).allows(names, NOW) is (verdict == "yes")


@pytest.mark.parametrize(("rule", "why"), table("What is refused"))
def test_what_the_page_calls_refused_is(rule, why):
    with pytest.raises(InvalidRule):
        Rule.parse(code(rule))


@pytest.mark.parametrize("rule", [row[0] for row in table("Operators")])
def test_the_operators_of_the_page_exist(rule):
    Rule.parse(f"@job.x {code(rule)} 'y'")


# Whatever comes


ALPHABET = "@.:'\"\\()&|=!~<>?%/ \n-_0aé"
WORDS = ["@request.auth.id", "@job.x", "true", "'", "''", "(", ")", "&&", "||", "=", "?~", "@now"]


@given(st.text() | st.text(ALPHABET) | st.lists(st.sampled_from(WORDS)).map(" ".join))
@example("'\\")
@example("@")
@example("@job.x:isset = " + "9" * 3_900)
@example("@job.x = " + "9" * 1_000 + ".5")
@example("(" * 4_000)
def test_any_text_is_a_rule_or_is_refused_with_a_position(text):
    try:
        rule = Rule.parse(text)
    except InvalidRule as refused:
        position = refused.position
    else:
        position = 0
        assert rule.allows(Names(request=ANN, job=JOB), NOW) in {True, False}
    assert 0 <= position <= len(text)
