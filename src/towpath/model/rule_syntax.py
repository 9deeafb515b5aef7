"""The syntax of access rules: from text to a tree. `rules` gives the tree its meaning.

    rule       = [either]
    either     = both { "||" both }
    both       = term { "&&" term }
    term       = "(" either ")" | "true" | "false" | operand operator operand
    operand    = text | number | "true" | "false" | "null" | name [ ":" modifier ]
    operator   = [ "?" ] ( "=" | "!=" | ">" | ">=" | "<" | "<=" | "~" | "!~" )

Blanks, line ends and `// comments` are allowed between any two tokens.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

from towpath.errors import InvalidRule

LONGEST: Final = 4_000  # characters
DEEPEST: Final = 50  # nested parentheses
REQUEST: Final = ("auth", "body", "query", "headers", "method", "context")
PLAIN: Final = ("method", "context")  # parts of a request that have no fields
MACROS: Final = frozenset(
    f"@{name}"
    for name in (
        *("now", "second", "minute", "hour", "weekday", "day", "month", "year"),
        *("yesterday", "tomorrow", "todayStart", "todayEnd"),
        *("monthStart", "monthEnd", "yearStart", "yearEnd"),
    )
)
WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}

Modifier: TypeAlias = Literal["", "isset", "length", "each", "lower"]
MODIFIERS: Final[dict[str, Modifier]] = {
    "isset": "isset",
    "length": "length",
    "each": "each",
    "lower": "lower",
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is written in the rule."""

    value: str | float | bool | None


@dataclass(frozen=True, slots=True)
class Macro:
    """A value that depends on the current time."""

    name: str


Root = Literal["request", "job", "channel", "subscription", "event"]
OF_ACCESS: Final[tuple[Root, ...]] = ("request", "job", "channel")
OF_WEBHOOKS: Final[tuple[Root, ...]] = ("request", "subscription")
OF_EVENTS: Final[tuple[Root, ...]] = ("event",)


@dataclass(frozen=True, slots=True)
class Field:
    """A value of the request, the job, the channel, the subscription or the event."""

    root: Root
    path: tuple[str, ...]
    modifier: Modifier = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and the operator that compares them."""

    left: "Operand"
    operator: str  # without its question mark
    right: "Operand"
    any_of: bool = False  # with lists, one pair that holds is enough


@dataclass(frozen=True, slots=True)
class Both:
    """Every part must hold."""

    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Either:
    """One part must hold."""

    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a rule that holds or does not, as it is written."""

    text: str
    position: int
    tree: "Comparison | Constant"


Operand: TypeAlias = Constant | Macro | Field
Tree: TypeAlias = Constant | Comparison | Both | Either

_TOKEN: Final = re.compile(
    r"""(?P<blank>[\ \t\r\n]+|//[^\n]*)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<number>-?[0-9]+(?:\.[0-9]+)?)
      | (?P<name>[@A-Za-z_][A-Za-z0-9_.:]*)
      | (?P<operator>\??(?:!=|!~|>=|<=|=|>|<|~))
      | (?P<join>&&|\|\|)
      | (?P<group>[()])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"""\\(['"\\])""")
_HINTS: Final = {
    "&": "; use && to join two conditions",
    "|": "; use || to join two conditions",
    "/": "; a comment begins with //",
    ",": "; rules have no functions",
    "-": "; names have letters, digits and _, also in place of the - of a header",
}
_UNSTORABLE: Final = re.compile(r"[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The end of a message that names this token."""
        return f"found {self.text[:30]!r}" if self.text else "found the end"


def parse(text: str, roots: tuple[Root, ...] = OF_ACCESS) -> Tree | None:
    """Read a rule over these roots; None if it holds only blanks and comments."""
    if len(text) > LONGEST:
        _refuse(LONGEST, f"the rule has {len(text):,} characters; at most {LONGEST:,} are allowed")
    if bad := _UNSTORABLE.search(text):
        _refuse(bad.start(), f"the character {bad[0]!r} cannot be stored; remove it")
    parser = _parser(text, roots)
    return None if parser.token.kind == "end" else parser.whole()


def terms(text: str, roots: tuple[Root, ...] = OF_ACCESS) -> list[Term]:
    """Return the comparisons of a rule that can be read, in the order in which they are written."""
    parser = _parser(text, roots)
    if parser.token.kind != "end":
        parser.whole()
    return [Term(text[start:end], start, tree) for start, end, tree in parser.terms]


def _parser(text: str, roots: tuple[Root, ...]) -> "_Parser":
    return _Parser([*_tokens(text), _Token("end", "", len(text))], roots)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        if not (match := _TOKEN.match(text, position)):
            character = text[position]
            if character in "'\"":
                _refuse(position, f"the text that begins here has no closing {character}")
            _refuse(position, f"unexpected {character!r}{_HINTS.get(character, '')}")
        if match.lastgroup != "blank":
            yield _Token(str(match.lastgroup), match[0], position)
        position = match.end()


def _refuse(position: int, message: str) -> NoReturn:
    raise InvalidRule(f"position {position}: {message}", position)


class _Parser:
    def __init__(self, tokens: list[_Token], roots: tuple[Root, ...]) -> None:
        self._tokens = tokens
        self._roots: dict[str, Root] = {f"@{root}": root for root in roots}
        self._next = 0
        self._depth = 0
        self.terms: list[tuple[int, int, Comparison | Constant]] = []  # from where to where

    @property
    def token(self) -> _Token:
        return self._tokens[self._next]

    def whole(self) -> Tree:
        tree = self._either()
        if self.token.kind != "end":
            _refuse(self.token.position, f"expected && or || or the end, {self.token.shown}")
        return tree

    def _take(self) -> _Token:
        token = self.token
        self._next += 1
        return token

    def _takes(self, text: str) -> bool:
        """Step over a join or parenthesis if it is the next token."""
        is_next = self.token.text == text
        self._next += is_next
        return is_next

    def _either(self) -> Tree:
        parts = [self._both()]
        while self._takes("||"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _both(self) -> Tree:
        parts = [self._term()]
        while self._takes("&&"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _term(self) -> Tree:
        position = self.token.position
        if self._takes("("):
            self._depth += 1
            if self._depth > DEEPEST:
                _refuse(position, f"parentheses may be nested at most {DEEPEST} levels deep")
            tree = self._either()
            if not self._takes(")"):
                _refuse(self.token.position, f"expected && or || or ), {self.token.shown}")
            self._depth -= 1
            return tree
        left = self._operand()
        if self.token.kind == "operator":
            return self._noted(position, self._comparison(left))
        if isinstance(left, Constant) and isinstance(left.value, bool):
            return self._noted(position, left)
        _refuse(self.token.position, f"expected an operator such as = or !=, {self.token.shown}")

    def _noted(self, start: int, term: Comparison | Constant) -> Comparison | Constant:
        last = self._tokens[self._next - 1]
        self.terms.append((start, last.position + len(last.text), term))
        return term

    def _comparison(self, left: Operand) -> Comparison:
        written = self._take().text
        operator = written.removeprefix("?")
        position = self.token.position
        right = self._operand()
        if operator.endswith("~") and isinstance(right, Constant):
            pattern = right.value
            if not isinstance(pattern, str) or not pattern:
                _refuse(position, f"expected a text to search for after {written}, such as 'abc'")
        return Comparison(left, operator, right, any_of=written != operator)

    def _operand(self) -> Operand:
        token = self._take()
        match token.kind:
            case "text":
                return Constant(_ESCAPED.sub(r"\1", token.text[1:-1]))
            case "number":
                return Constant(float(token.text) if "." in token.text else int(token.text))
            case "name" if token.text.lower() in WORDS:
                return Constant(WORDS[token.text.lower()])
            case "name":
                return self._named(token)
            case _:
                _refuse(
                    token.position,
                    f"expected a value such as 'abc' or {self._example}.x, "
                    f"{token.shown}{_hint(token)}",
                )

    def _named(self, token: _Token) -> Operand:
        name, position = token.text, token.position
        if self.token.text == "(":
            _refuse(position, f"unknown function {name}(): rules have no functions")
        if name in MACROS:
            return Macro(name)
        name, _, modifier = name.partition(":")
        root, *path = name.split(".")
        if root == "@collection":
            _refuse(position, f"rules cannot read collections; use {' or '.join(self._shown)}")
        if not root.startswith("@"):
            part = self._example if self._example == "@subscription" else f"{self._example}.payload"
            meant = f"write {part}.{name}, or '{name}' for the text"
            _refuse(position, f"unknown name {name}; {meant}")
        if root not in self._roots:
            known = ", ".join((*(f"{each}.…" for each in self._roots), *sorted(MACROS)))
            _refuse(position, f"unknown name {token.text}; known names: {known}")
        if not path or not all(path):
            _refuse(position, f"{name} lacks the name of a field; write {root}.x")
        if root == "@request":
            _check_request(path, position)
            if path == ["context"]:
                return Constant("default")  # the only one of PocketBase's contexts that exists here
        return Field(self._roots[root], tuple(path), _modifier(token, modifier))

    @property
    def _example(self) -> str:
        return next(each for each in ("@job", "@subscription", "@event") if each in self._roots)

    @property
    def _shown(self) -> tuple[str, ...]:
        own = f"{self._example}.x"
        return (own, "@request.auth.x") if "@request" in self._roots else (own,)


def _hint(token: _Token) -> str:
    """Return the right operator for one of another language: `==` or `<>`."""
    meant = {"=": "equal is =", ">": "unequal is !="}.get(token.text)
    return f" ({meant})" if meant else ""


def _check_request(path: list[str], position: int) -> None:
    part = path[0]
    if part not in REQUEST:
        known = ", ".join(f"@request.{each}" for each in REQUEST)
        _refuse(position, f"unknown name @request.{part}; known names: {known}")
    if part in PLAIN and len(path) > 1:
        _refuse(position, f"@request.{part} has no fields")
    if part not in PLAIN and len(path) == 1:
        _refuse(position, f"@request.{part} lacks the name of a field; write @request.{part}.x")
    if part == "headers" and path[1] != path[1].lower():
        _refuse(position, "write headers in lower case, with _ for -: @request.headers.x_y")


def _modifier(token: _Token, modifier: str) -> Modifier:
    position = token.text.find(":")
    if position < 0:
        return ""
    if modifier == "changed":
        _refuse(token.position + position, "unknown modifier :changed; jobs are never edited")
    if modifier not in MODIFIERS:
        known = ", ".join(f":{each}" for each in MODIFIERS)
        message = f"unknown modifier :{modifier[:30]}; known modifiers, each at the end: {known}"
        _refuse(token.position + position, message)
    return MODIFIERS[modifier]
