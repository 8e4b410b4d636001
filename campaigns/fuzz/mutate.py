"""Damage for any file: bytes flipped, cut, repeated and swapped; where a file is a tree, its leaves
replaced by odd values."""

import json
import random
import re
import zlib
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message
from hypothesis import strategies as st

NUMBERS = (-1, 0, 1, 2, 7, 127, 255, -(2**31), 2**31 - 1, 2**31, 2**53, -(2**63), 2**63 - 1)
LARGE = (
    10**30,
    -(10**25),
    10**400,
)  # whole numbers that no 64 bits hold; the last one no float either
TEXTS = (
    "", "x", "y", "\x1b[31mred", "<script>", "[/b]", "../../etc/passwd", "/etc/passwd", "a\0b", "x" * 70_000, "\u202eabc", "None",
    "\ud7ff\U0010ffff", "*", "0-999999999", "1e999",
)  # fmt: skip
# Once they are written (``_dumped``): a number whose digits are more than Python reads, and lists
# in lists, more than any reader takes.
ENDLESS, DEEP = "@@endless@@", "@@deep@@"
# What only templates look at.
IN_TEMPLATES = (
    "{{ " + "9" * 5_000 + " }}",
    "{{ 1e400 }}",
    "{{ '\\ud83d' }}",
    "{{ x|unknown }}",
    "{{" * 300,
)
LEAVES = (
    None, True, False, *NUMBERS, *LARGE, "\ud83d", ENDLESS, *IN_TEMPLATES, 0.5, 1e308, -1e-308, *TEXTS, [], {}, [[]],
    {"a": []}, ["x"], [-1, 2**62],
)  # fmt: skip

# What has a rule of its own somewhere, and would seldom meet it among all the leaves.
ODD_TEXTS = ("\ud83d", "\x1b[31mred", *IN_TEMPLATES)
ODDEST = (*LARGE, ENDLESS, DEEP, *ODD_TEXTS)
# A name that does something wherever it is not shown literally: in a terminal, in HTML, in
# Markdown.
ACTING = "\x1b[31mred\u202e<script>[/b]`*|\n"

_DIGEST = re.compile("[0-9a-f]{64}")

# (what, where as a part of the whole, with what): applied in order.
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "drop", "insert", "repeat", "nest", "swap"]),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=6,
)


def edited(data: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    """The bytes after these edits."""
    made = bytearray(data)
    for what, where, piece in edits:
        at = int(where * len(made))
        match what:
            case "flip":
                made[at : at + len(piece)] = bytes(
                    a ^ b for a, b in zip(made[at:], piece, strict=False)
                )
            case "cut":
                del made[at:]
            case "drop":
                del made[at : at + len(piece) ** 3]
            case "insert":
                made[at:at] = piece
            case "repeat":
                made[at:at] = made[at : at + 64] * len(piece)
            case "nest":
                made[at:at] = (b"[" if piece[0] % 2 else b'{"a":') * (len(piece) * 5000)
            case "swap":
                made = made[at:] + made[:at] if len(piece) > 6 else made
    return bytes(made[: 4 << 20])


def written(data: Any) -> bytes:
    """Plain data as JSON, with numbers that no program writes."""
    return _dumped(data)


def _dumped(data: Any, separators: tuple[str, str] | None = None) -> bytes:
    text = json.dumps(data, separators=separators).replace(json.dumps(ENDLESS), "9" * 5_000)
    return text.replace(json.dumps(DEEP), "[" * 5_000 + "]" * 5_000).encode()


def tree(data: Any, seed: int) -> Any:
    """Plain data with some of its values replaced, removed or repeated. In every other one only by
    values of their own kind: who looks at the form first finds no fault there, and goes on to what
    the values say."""
    chance = random.Random(seed)
    made = json.loads(json.dumps(data))
    if chance.random() < 0.5:
        leaves = _leaves(made)
        for holder, key in (
            chance.choices(leaves, k=chance.randint(1, max(3, len(leaves) // 80))) if leaves else ()
        ):
            holder[key] = _of_its_kind(holder[key], chance)
        return made
    for _ in range(chance.randint(1, 3)):
        places = list(_places(made))
        if not places:
            return _leaf(chance)
        holder, key = chance.choice(places)
        match chance.randrange(5):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[chance.choice(TEXTS)] = holder.pop(key)
            case 2 if isinstance(holder, list):
                holder[key:key] = holder[key : key + 1] * chance.choice((1, 2, 50))
            case _:
                holder[key] = _leaf(chance)
    return made


def endless(data: Any, *, templates: bool = False) -> Iterator[bytes]:
    """The tree once for each name of a leaf in it, of which one is a number of more digits than
    Python reads; in place of a text one in a template, where there are ``templates``. Chance alone
    may pass all of these by."""
    for name in sorted({str(key) for _, key in _leaves(data)}):
        made = json.loads(json.dumps(data))
        holder, key = next(place for place in _leaves(made) if str(place[1]) == name)
        holder[key] = IN_TEMPLATES[0] if templates and isinstance(holder[key], str) else ENDLESS
        yield written(made)


def _of_its_kind(value: Any, chance: random.Random) -> Any:
    """An odd value that stands for this one: a text or a longer one, a number, the other truth."""
    match value:
        case bool():
            return not value
        case int() | float():
            return chance.choice(chance.choice((NUMBERS, LARGE)))
        case str():
            odd = chance.choice(chance.choice((TEXTS, ODD_TEXTS, ODD_TEXTS)))
            return chance.choice((odd, value + odd, odd + value))
    return value


def _leaf(chance: random.Random) -> Any:
    return chance.choice(chance.choice((LEAVES, LEAVES, ODDEST)))


def _at(place: tuple[Any, Any]) -> Any:
    holder, key = place
    return holder[key]


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    todo = [data]
    while todo:
        here = todo.pop()
        keys = (
            list(here)
            if isinstance(here, dict)
            else range(len(here))
            if isinstance(here, list)
            else ()
        )
        for key in keys:
            yield here, key
            if isinstance(here[key], dict | list):
                todo.append(here[key])


def _leaves(data: Any) -> list[tuple[Any, Any]]:
    return [place for place in _places(data) if not isinstance(_at(place), dict | list)]


def journal(lines: list[bytes], seed: int) -> bytes:
    """The journal with some lines changed, dropped or repeated, or with one of its names, or
    numbers, replaced wherever it stands; signed and in most cases counted again, so that what
    stands in it is really looked at."""
    chance = random.Random(seed)
    made = list(lines)
    how = chance.random()
    if how < 0.3:
        made = _renamed(made, chance)
    elif how < 0.5:
        made = _recounted(made, chance)
    else:
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(made))
            match chance.randrange(8):
                case 0:
                    del made[at]
                case 1:
                    made.insert(at, made[chance.randrange(len(made))])
                case _:
                    made[at] = _signed(tree(_unsigned(made[at]), chance.getrandbits(32)))
            if not made:
                return b""
    if chance.random() < 0.1:
        return b"".join(made)
    return b"".join(_signed({**event, "seq": n}) if isinstance(event := _unsigned(line), dict) else line
                    for n, line in enumerate(made, 1))  # fmt: skip


def _renamed(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """The lines with one text replaced in all of them, as a key too: the same name everywhere, as a
    hostile model has it; or one artifact in place of another."""
    events = [_unsigned(line) for line in lines]
    texts = sorted(
        {
            _at(place)
            for place in _places(events)
            if isinstance(_at(place), str) and place[1] != "kind"
        }
    )
    digests = [text for text in texts if _DIGEST.fullmatch(text)]
    if chance.random() < 0.2:
        old, new = chance.choice(digests), chance.choice(digests)
    else:
        old = chance.choice([text for text in texts if text not in digests])
        new = chance.choice((ACTING, old + ACTING, _of_its_kind(old, chance)))
    return [_signed(_replaced(event, old, new)) for event in events]


def overgrown(lines: list[bytes]) -> Iterator[bytes]:
    """The journal once for each name of a number, which is one that no 64 bits hold wherever it
    stands: few of the names are said as JSON, so that chance alone may pass all of these by."""
    for name in _counted(lines):
        yield b"".join(_recount(lines, name, LARGE[0]))


def _recounted(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """The lines with every number of one name replaced by one odd number."""
    return _recount(
        lines, chance.choice(_counted(lines)), chance.choice((*LARGE, 2**63 - 1, -1, 0))
    )


def _counted(lines: list[bytes]) -> list[str]:
    """The names of the numbers in these lines, but for those that number the lines themselves."""
    return sorted({str(key) for _, key in _counts([_unsigned(line) for line in lines])})


def _counts(events: list[Any]) -> list[tuple[Any, Any]]:
    return [
        place
        for place in _places(events)
        if type(_at(place)) in (int, float) and place[1] not in ("v", "seq")
    ]


def _recount(lines: list[bytes], name: str, new: int) -> list[bytes]:
    events = [_unsigned(line) for line in lines]
    for holder, key in _counts(events):
        if str(key) == name:
            holder[key] = new
    return [_signed(event) for event in events]


def _replaced(data: Any, old: str, new: str) -> Any:
    match data:
        case dict():
            return {
                _replaced(key, old, new): _replaced(value, old, new) for key, value in data.items()
            }
        case list():
            return [_replaced(value, old, new) for value in data]
    return new if data == old else data


def _unsigned(line: bytes) -> Any:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # damaged already
        return None
    if isinstance(event, dict):
        event.pop("crc", None)
    return event


def _signed(event: Any) -> bytes:
    if not isinstance(event, dict) or not event:
        return written(event) + b"\n"
    body = _dumped(event, (",", ":"))
    return b'%s,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body))


def message(proto: Message, seed: int) -> None:
    """Change one to four fields of a protobuf message, or of any message in it, to odd values of
    their own type."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        here = chance.choice(list(_messages(proto)))
        field = chance.choice(here.DESCRIPTOR.fields)
        _odd(here, field, chance)


def _messages(proto: Message) -> Iterator[Message]:
    todo = [proto]
    while todo:
        here = todo.pop()
        yield here
        for field, value in here.ListFields():
            if field.type == field.TYPE_MESSAGE:
                todo += list(value) if _repeated(field) else [value]


def _repeated(field: Any) -> bool:
    return (
        bool(field.is_repeated)
        if hasattr(field, "is_repeated")
        else bool(field.label == field.LABEL_REPEATED)
    )


def _odd(here: Message, field: Any, chance: random.Random) -> None:
    name = field.name
    if chance.random() < 0.2:
        here.ClearField(name)
        return
    if field.type == field.TYPE_MESSAGE:
        if _repeated(field):
            values = getattr(here, name)
            if len(values) and chance.random() < 0.5:
                values.append(chance.choice(list(values)))  # twice the same
            else:
                values.add()
        else:
            getattr(here, name).SetInParent()
        return
    value = _value(field, chance)
    if _repeated(field):
        values = getattr(here, name)
        if len(values) and chance.random() < 0.5:
            values[chance.randrange(len(values))] = value
        else:
            values.append(value)
    else:
        setattr(here, name, value)


def _value(field: Any, chance: random.Random) -> Any:
    if field.type == field.TYPE_STRING:
        return chance.choice(TEXTS)
    if field.type == field.TYPE_BYTES:
        return chance.choice((b"", b"\xff", b"\0" * 64, b"x" * 70_000))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return chance.choice((0.0, float("nan"), float("inf"), 1e30))
    if field.type == field.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == field.TYPE_ENUM:
        known = [v.number for v in field.enum_type.values]
        return chance.choice((*known, 99) if not field.enum_type.is_closed else tuple(known))
    wide = field.type in (field.TYPE_INT64, field.TYPE_UINT64, field.TYPE_SINT64)
    unsigned = field.type in (field.TYPE_UINT32, field.TYPE_UINT64)
    low, high = (
        (0 if unsigned else -(2 ** (63 if wide else 31))),
        2 ** ((64 if wide else 32) - (not unsigned)) - 1,
    )
    return max(low, min(high, chance.choice((*NUMBERS, chance.randrange(40)))))
