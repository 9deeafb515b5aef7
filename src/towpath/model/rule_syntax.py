"""How an access rule is read: from its text to a tree. What the tree means is told in `rules`.

    rule       = [either]
    either     = both { "||" both }
    both       = term { "&&" term }
    term       = "(" either ")" | "true" | "false" | operand operator operand
    operand    = text | number | "true" | "false" | "null" | name [ ":" modifier ]
    operator   = [ "?" ] ( "=" | "!=" | ">" | ">=" | "<" | "<=" | "~" | "!~" )

Blanks, line ends and `// comments` may stand between any two of them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

from towpath.errors import InvalidRule

LONGEST: Final = 4_000  # characters
DEEPEST: Final = 50  # parentheses within each other
REQUEST: Final = ("auth", "body", "query", "headers", "method", "context")
PLAIN: Final = ("method", "context")  # parts of a request that have no parts themselves
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
    """A value that the rule itself says."""

    value: str | float | bool | None


@dataclass(frozen=True, slots=True)
class Macro:
    """A value that follows from what time it is."""

    name: str


@dataclass(frozen=True, slots=True)
class Field:
    """A value of the request or of the job."""

    root: Literal["request", "job"]
    path: tuple[str, ...]
    modifier: Modifier = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and how they should be to each other."""

    left: "Operand"
    operator: str  # without its question mark
    right: "Operand"
    any_of: bool = False  # one pair of a list is enough


@dataclass(frozen=True, slots=True)
class Both:
    """Every part must hold."""

    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Either:
    """One part must hold."""

    parts: "tuple[Tree, ...]"


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
    "&": ": two of them join",
    "|": ": two of them join",
    "/": ": two of them begin a comment",
    ",": ": there are no functions",
    "-": ": a name has letters, digits and _, which also stands for the - of a header",
}
_UNSTORABLE: Final = re.compile(r"[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def shown(self) -> str:
        """What a message says was found."""
        return f"found {self.text[:30]!r}" if self.text else "found the end"


def parse(text: str) -> Tree | None:
    """Read a rule; None if there is nothing in it but blanks and comments."""
    if len(text) > LONGEST:
        _refuse(LONGEST, f"a rule has at most {LONGEST:,} characters, this one has {len(text):,}")
    if bad := _UNSTORABLE.search(text):
        _refuse(bad.start(), f"a database cannot store the character {bad[0]!r}")
    parser = _Parser([*_tokens(text), _Token("end", "", len(text))])
    return None if parser.token.kind == "end" else parser.whole()


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        if not (match := _TOKEN.match(text, position)):
            found = text[position]
            if found in "'\"":
                _refuse(position, f"the text that begins with {found} has no closing {found}")
            _refuse(position, f"a rule cannot have {found!r} here{_HINTS.get(found, '')}")
        if match.lastgroup != "blank":
            yield _Token(str(match.lastgroup), match[0], position)
        position = match.end()


def _refuse(position: int, message: str) -> NoReturn:
    raise InvalidRule(f"position {position}: {message}", position)


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

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
        """Step over a join or parenthesis, if it comes next."""
        comes = self.token.text == text
        self._next += comes
        return comes

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
                _refuse(position, f"parentheses stand at most {DEEPEST} deep within each other")
            tree = self._either()
            if not self._takes(")"):
                _refuse(self.token.position, f"expected && or || or ), {self.token.shown}")
            self._depth -= 1
            return tree
        left = self._operand()
        if self.token.kind == "operator":
            return self._comparison(left)
        if isinstance(left, Constant) and isinstance(left.value, bool):
            return left
        _refuse(self.token.position, f"expected an operator such as = or !=, {self.token.shown}")

    def _comparison(self, left: Operand) -> Comparison:
        said = self._take().text
        operator = said.removeprefix("?")
        position = self.token.position
        right = self._operand()
        if operator.endswith("~") and isinstance(right, Constant):
            wanted = right.value
            if not isinstance(wanted, str) or not wanted:
                _refuse(position, f"expected a text to look for after {said}, such as 'abc'")
        return Comparison(left, operator, right, any_of=said != operator)

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
                    f"expected a value such as 'abc' or @job.x, {token.shown}{_hint(token)}",
                )

    def _named(self, token: _Token) -> Operand:
        name, position = token.text, token.position
        if self.token.text == "(":
            _refuse(position, f"rules have no functions such as {name}()")
        if name in MACROS:
            return Macro(name)
        name, _, modifier = name.partition(":")
        root, *path = name.split(".")
        if root == "@collection":
            _refuse(position, "rules cannot look into collections: use @job.x or @request.auth.x")
        if not root.startswith("@"):
            meant = f"write @job.payload.{name}, or '{name}' for the text"
            _refuse(position, f"there are no bare fields such as {name}: {meant}")
        if root not in {"@request", "@job"}:
            known = ", ".join(sorted(MACROS))
            _refuse(position, f"{token.text} is none of @request.…, @job.…, {known}")
        if not path or not all(path):
            _refuse(position, f"{name} has no field behind a dot: write {root}.x")
        if root == "@job":
            return Field("job", tuple(path), _modifier(token, modifier))
        _check_request(path, position)
        if path == ["context"]:
            return Constant("default")  # the other contexts of PocketBase are not ours
        return Field("request", tuple(path), _modifier(token, modifier))


def _hint(token: _Token) -> str:
    """Return what those mean who write rules as in another language."""
    meant = {"=": "equal is =", ">": "unequal is !="}.get(token.text)
    return f" ({meant})" if meant else ""


def _check_request(path: list[str], position: int) -> None:
    part = path[0]
    if part not in REQUEST:
        known = ", ".join(f"@request.{each}" for each in REQUEST)
        _refuse(position, f"there is no @request.{part}: there are {known}")
    if part in PLAIN and len(path) > 1:
        _refuse(position, f"@request.{part} has no fields")
    if part not in PLAIN and len(path) == 1:
        _refuse(position, f"@request.{part} has fields: write @request.{part}.x")
    if part == "headers" and path[1] != path[1].lower():
        _refuse(position, "headers are written in lower case, with _ for -: @request.headers.x_y")


def _modifier(token: _Token, modifier: str) -> Modifier:
    position = token.text.find(":")
    if position < 0:
        return ""
    if modifier == "changed":
        _refuse(token.position + position, "there is no :changed, as jobs are not edited")
    if modifier not in MODIFIERS:
        known = ", ".join(f":{each}" for each in MODIFIERS)
        message = f"there is no modifier :{modifier[:30]}; one of {known} may come last"
        _refuse(token.position + position, message)
    return MODIFIERS[modifier]
