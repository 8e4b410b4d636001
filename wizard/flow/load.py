"""From a flow file to frozen data, with the line and column of every key and value kept for
messages.

YAML 1.2's core schema: ``yes`` and ``no`` are text, ``1e-3`` is a number. No aliases, tags or merge
keys: a flow is plain data.
"""

import errno
import functools
import math
import re
import typing
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import yaml

from narrowdown.engines.nearest import suggestion
from narrowdown.engines.store import regular
from narrowdown.wizard import BadUsage
from narrowdown.wizard.flow.model import HALF, LARGEST, TOO_LARGE, Flow
from narrowdown.wizard.sizes import read_size

FORMAT: Final = 1
GROUP: Final = "narrowdown.flows"
DEEPEST: Final = 40  # nested mappings and lists

PathInFile: TypeAlias = tuple[str | int, ...]

# What is behind the words of the YAML reader, as a rule, and what to do.
_MENDING = {
    r"'\t'": "Indent with blanks, not with tabs.",
    "mapping values are not allowed here": "Put quotes around a text that holds ': ', and look at the indentation.",
    "but found": "Look at the indentation here and above, and that each quote that opens is closed.",
    "but got": "Look for a bracket or a quote that is opened and not closed.",
    "undefined alias": "Put quotes around a text that begins with '*'.",
}

SIZE = re.compile(r"([0-9]+)(KiB|MiB|GiB)")
_KINDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "nothing",
    "object": "a mapping", "array": "a list",
}  # fmt: skip


class Core(yaml.SafeLoader):
    """PyYAML reads YAML 1.1, where ``no`` is false and ``1e-3`` is text; these are the resolvers of
    YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own class attribute


for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", [*"~nN", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", [*"tTfF"]),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", [*"-+0123456789"]),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        [*"-+.0123456789"],
    ),
):
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def compose(text: str, kind: type[Core | yaml.BaseLoader] = Core) -> yaml.Node | None:
    """The root of the only document in the text; None where there is none. ``yaml.BaseLoader``:
    every scalar is text. Raises yaml.MarkedYAMLError, yaml.reader.ReaderError, RecursionError."""
    loader = kind("")
    try:
        loader = kind(text)
        return loader.get_single_node()
    finally:
        loader.dispose()


class FlowProblem(BadUsage):
    """A flow file cannot be used. ``str()`` is ``file:line:column: message suggestion``; line 0
    means the file as a whole."""

    def __init__(
        self, file: str, line: int, column: int, message: str, suggestion: str = ""
    ) -> None:
        where = f"{file}:{line}:{column}" if line else file
        super().__init__(f"{where}: {message}{' ' if suggestion else ''}{suggestion}")
        self.file, self.line, self.column, self.message, self.suggestion = (
            file,
            line,
            column,
            message,
            suggestion,
        )


class Lines:
    """Where each key and value of the file stands: (line, column), both from 1. A path is keys and
    list positions."""

    def __init__(self) -> None:
        self._keys: dict[PathInFile, tuple[int, int]] = {}
        self._values: dict[PathInFile, tuple[int, int]] = {(): (1, 1)}

    def key(self, *path: str | int) -> tuple[int, int]:
        """Of the key itself; of the nearest thing around it where the file does not have it."""
        while path and path not in self._keys:
            path = path[:-1]
        return self._keys.get(path) or self._values.get(path, (1, 1))

    def value(self, *path: str | int) -> tuple[int, int]:
        """Of the value below the key or list position; of the nearest thing around it where the
        file does not have it."""
        while path and path not in self._values:
            path = path[:-1]
        return self._values.get(path, (1, 1))

    def _note(self, path: PathInFile, key: tuple[int, int] | None, value: tuple[int, int]) -> None:
        if key is not None:
            self._keys[path] = key
        self._values[path] = value


class Loaded(msgspec.Struct, frozen=True):
    """A flow, its text, and where everything in it stands. ``path`` is for messages."""

    flow: Flow
    path: str
    text: str
    lines: Lines


def shipped() -> tuple[str, ...]:
    """The names of the flows that come with the program."""
    return tuple(
        sorted(
            f.name.removesuffix(".yaml")
            for f in files("narrowdown.flows").iterdir()
            if f.name.endswith(".yaml")
        )
    )


def brought() -> dict[str, Path]:
    """Where the flows of other packages lie, by name: an entry point of the group
    ``narrowdown.flows`` names the package whose folder has ``<its name>.yaml``. Ours come first;
    what is not there is found out by whoever opens it."""
    found = {}
    for point in entry_points(group=GROUP):
        spec = find_spec(point.value.partition(".")[0])
        place = Path(spec.origin).parent if spec is not None and spec.origin else Path(point.value)
        found[point.name] = place.joinpath(*point.value.split(".")[1:]) / f"{point.name}.yaml"
    return {name: found[name] for name in sorted(found) if name not in shipped()}


def load(path_or_name: str | Path) -> Loaded:
    """A flow by name, ours or another package's, or a file by path. Raises FlowProblem."""
    name = str(path_or_name)
    if isinstance(path_or_name, str) and "/" not in name and not name.endswith((".yaml", ".yml")):
        if name in shipped():
            text = (files("narrowdown.flows") / f"{name}.yaml").read_text(encoding="utf-8")
            return parse(text, f"{name}.yaml")
        others = brought()
        if name in others:
            return parse(_text(others[name], name, "flow"), str(others[name]))
        if not Path(name).is_file():
            known = (*shipped(), *others)
            raise FlowProblem(
                name,
                0,
                0,
                "this is a folder; name the file in it."
                if Path(name).is_dir()
                else f"no flow of this name is installed, and no file has it. Known: {', '.join(known)}.",
                suggestion(name, known),
            )
    path = Path(path_or_name).expanduser()
    return parse(_text(path, name, "flow"), name)


def load_texts(
    path: str, what: str = "answers file", maps: str = "nodes to answers"
) -> tuple[dict[str, Any], Lines]:
    """A mapping from a YAML file in which every scalar is text (``yes`` is an answer), as bounded
    as a flow, and where everything in it stands. An empty file is an empty mapping. ``what`` the
    file is and ``maps`` are for messages. Raises FlowProblem."""
    text = _text(Path(path).expanduser(), path, what)
    lines = Lines()
    article = "an" if what[0] in "aeiou" else "a"
    try:
        return _Reader(path, lines, f"{article} {what}", yaml.BaseLoader, f" of {maps}").read(
            text
        ), lines
    except RecursionError:
        raise FlowProblem(path, 0, 0, "the file is nested too deeply.") from None


def _text(path: Path, name: str, what: str) -> str:
    try:
        return regular.read(path, LARGEST).decode("utf-8-sig")
    except regular.Unfit as problem:
        if problem.errno == errno.EFBIG:
            raise FlowProblem(
                name, 0, 0, f"the file is larger than {LARGEST:,} bytes, which no {what} is."
            ) from None
        raise FlowProblem(name, 0, 0, f"the file cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        raise FlowProblem(
            name, 0, 0, f"the file is not UTF-8 text (byte {problem.start}); save it as UTF-8."
        ) from None
    except OSError as problem:
        raise FlowProblem(
            name, 0, 0, f"the file cannot be read: {problem.strerror or problem}."
        ) from None


def parse(text: str, path: str = "flow") -> Loaded:
    """A flow from its text. Raises FlowProblem at the first thing that is wrong with the form;
    meaning is ``check``'s. A flow that ``follows`` another has that one's nodes and ends behind its
    own, and is whole in the text that a session keeps."""
    try:
        text = _join_followed(text)
        flow, lines = _parsed(text)
    except FlowProblem as found:
        raise FlowProblem(path, found.line, found.column, found.message, found.suggestion) from None
    except RecursionError:
        raise FlowProblem(path, 0, 0, "the file is nested too deeply.") from None
    return Loaded(flow, path, text, lines)


_FOLLOWS = re.compile(r"^follows: ([a-z0-9-]+)\n", re.MULTILINE)
_NODES, _ENDS = "\nnodes:\n", "\nends:\n"


def _join_followed(text: str) -> str:
    """The text with the nodes and ends of the flow that it ``follows`` behind its own."""
    found = _FOLLOWS.search(text)
    if found is None:
        return text
    base = load(found[1]).text
    head, _, rest = _FOLLOWS.sub("", text).partition(_NODES)
    nodes, _, ends = rest.partition(_ENDS)
    _, _, others = base.partition(_NODES)
    their_nodes, _, their_ends = others.partition(_ENDS)
    return f"{head}{_NODES}{nodes}{their_nodes}{_ENDS}{ends}{their_ends}"


@functools.lru_cache(maxsize=16)
def _parsed(text: str) -> tuple[Flow, Lines]:
    """Once for each text, wherever it lies: the sessions of a list have the same few flows."""
    lines = Lines()
    return _Shaper("", lines).flow(_Reader("", lines).read(text)), lines


class _Reader:
    """YAML nodes to plain data; duplicate keys, aliases, tags and values that JSON does not have
    are refused where they stand."""

    def __init__(
        self,
        path: str,
        lines: Lines,
        what: str = "a flow",
        kind: type[Core | yaml.BaseLoader] = Core,
        holds: str = " with the keys schema, id, title, start, nodes and ends",
    ) -> None:
        self._path, self._lines, self._what, self._kind, self._holds = (
            path,
            lines,
            what,
            kind,
            holds,
        )
        self._seen: set[int] = set()

    def read(self, text: str) -> dict[str, Any]:
        try:
            root = compose(text, self._kind)
        except yaml.MarkedYAMLError as problem:
            mark = problem.problem_mark or problem.context_mark
            said = " ".join(
                filter(None, (problem.problem, problem.context and f"({problem.context})"))
            )
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            hint = next((told for words, told in _MENDING.items() if words in said), "")
            raise FlowProblem(
                self._path, line, column, f"this is not YAML: {said}.", hint
            ) from None
        except yaml.reader.ReaderError as problem:
            before = text[: problem.position]
            line, column = before.count("\n") + 1, problem.position - (before.rfind("\n") + 1) + 1
            raise FlowProblem(
                self._path, line, column, "there is a control character that text does not hold."
            ) from None
        if root is None and self._kind is not Core:
            return {}
        if root is None:
            raise FlowProblem(self._path, 1, 1, "the file is empty.")
        data = self._value(root, ())
        if not isinstance(data, dict):
            raise self._wrong(root, f"{self._what} is a mapping{self._holds}.")
        return data

    def _value(self, node: yaml.Node, path: PathInFile) -> Any:
        if isinstance(node, yaml.ScalarNode) and (half := HALF.search(node.value)):
            raise self._wrong(
                node, f"the text holds {half[0]!a}, half of a character, which no text can hold."
            )
        if id(node) in self._seen:
            raise self._wrong(node, f"{self._what} has no aliases (*name): write the value again.")
        if len(path) > DEEPEST:
            raise self._wrong(node, "the file is nested too deeply.")
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            for position, item in enumerate(node.value):
                self._lines._note((*path, position), None, _start(item))
            return [
                self._value(item, (*path, position)) for position, item in enumerate(node.value)
            ]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        raise self._wrong(node, f"{self._what} has no tags: '{node.tag[:80]}'.")

    def _mapping(self, node: yaml.MappingNode, path: PathInFile) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and HALF.search(key.value):
                raise self._wrong(
                    key, f"the key holds {HALF.findall(key.value)[0]!a}, half of a character."
                )
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                said = f"'{key.value}'" if isinstance(key, yaml.ScalarNode) else "this key"
                raise self._wrong(
                    key,
                    f"{said} is not text, and every key of {self._what} is.",
                    "Put it in quotes.",
                )
            if key.value in made:
                line = self._lines.key(*path, key.value)[0]
                raise self._wrong(key, f"'{key.value}' is here already, in line {line}.")
            self._lines._note((*path, key.value), _start(key), _start(value))
            made[key.value] = self._value(value, (*path, key.value))
        return made

    def _scalar(self, node: yaml.ScalarNode, path: PathInFile) -> Any:
        text: str = node.value
        match node.tag.rpartition(":")[2]:
            case "str":
                size = (
                    SIZE.fullmatch(text)
                    if not node.style and ("with" in path or path[:1] == ("params",))
                    else None
                )
                return read_size(text) if size else text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                whole = (
                    int(text, 0)
                    if text[:2] in ("0o", "0x")
                    else int(text)
                    if len(text) <= 20
                    else TOO_LARGE
                )
                if abs(whole) >= TOO_LARGE:
                    raise self._wrong(node, "the number is too large.")
                return whole
            case "float":
                number = (
                    float(text)
                    if "inf" not in text.lower() and "nan" not in text.lower()
                    else math.nan
                )
                if not math.isfinite(number):
                    raise self._wrong(node, f"'{text}' is not a finite number.")
                return number
        raise self._wrong(node, f"{self._what} has no tags: '{node.tag[:80]}'.")

    def _wrong(self, node: yaml.Node, message: str, suggestion: str = "") -> FlowProblem:
        return FlowProblem(self._path, *_start(node), message, suggestion)


def _start(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


class _Shaper:
    """Plain data to the structs of ``model``, part by part, so that what does not fit can be
    pointed at."""

    def __init__(self, path: str, lines: Lines) -> None:
        self._path, self._lines = path, lines

    def flow(self, data: dict[str, Any]) -> Flow:
        if data.get("schema", FORMAT) != FORMAT:
            raise self._at(
                self._lines.value("schema"),
                f"this file is of schema {data['schema']!r}; this program reads schema {FORMAT}.",
            )
        shaped: Flow = self._shape(data, Flow, ())
        return shaped

    def _shape(self, data: Any, kind: Any, at: PathInFile) -> Any:
        """Structs field by field, mappings and lists of structs value by value, all else as it
        is."""
        parts = (kind, *typing.get_args(kind))
        inner = [k for k in parts if isinstance(k, type) and issubclass(k, msgspec.Struct)]
        if not inner or (data is None and type(None) in parts):
            return self._checked(data, kind, at)
        if isinstance(data, list) and any(typing.get_origin(k) is tuple for k in parts):
            return tuple(self._struct(v, inner[0], (*at, place)) for place, v in enumerate(data))
        data = self._checked(data, dict[str, Any], at)
        if typing.get_origin(kind) is dict:
            return {name: self._struct(v, inner[0], (*at, name)) for name, v in data.items()}
        return self._struct(data, inner[0], at)

    def _struct(self, data: Any, kind: type[msgspec.Struct], at: PathInFile) -> msgspec.Struct:
        data = self._checked(data, dict[str, Any], at)
        fields = {f.encode_name: f for f in msgspec.structs.fields(kind)}
        for key in data:
            if key not in fields:
                hint = suggestion(key, fields) or f"Known: {', '.join(fields)}."
                message = f"there is no '{key}' {_place(at)}."
                raise self._at(self._lines.key(*at, key), message, hint)
        made = {fields[k].name: self._shape(v, fields[k].type, (*at, k)) for k, v in data.items()}
        for name, field in fields.items():
            if field.required and name not in data:
                subject = _place(at).removeprefix("in ") if at else "the flow"
                raise self._at(self._lines.key(*at), f"{subject} lacks '{name}'.")
        return kind(**made)

    def _checked(self, data: Any, kind: Any, at: PathInFile) -> Any:
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as problem:
            said, _, where = str(problem).partition(" - at `")
            path = (*at, *_inside(where.rstrip("`"), data))
            name = next((str(p) for p in reversed(path) if isinstance(p, str)), "the flow")
            raise self._at(self._lines.value(*path), in_words(said, name)) from None

    def _at(self, position: tuple[int, int], message: str, suggestion: str = "") -> FlowProblem:
        return FlowProblem(self._path, *position, message, suggestion)


def _inside(where: str, data: Any) -> PathInFile:
    """The path of a msgspec message (``$.terms[2]``), as far as it names one; ``[...]`` is the
    first value that is not text."""
    path: list[str | int] = []
    for name, index in re.findall(r"\.([^.\[]+)|\[([^\]]*)\]", where):
        if name:
            path.append(name)
        elif index.isdigit():
            path.append(int(index))
        else:
            here: Any = data
            for step in path:
                here = here[step] if isinstance(here, dict | list) else {}  # type: ignore[index]
            path += (
                [next((k for k, v in here.items() if not isinstance(v, str)), "")]
                if isinstance(here, dict)
                else []
            )
            break
    return tuple(p for p in path if p != "")


def in_words(said: str, name: str) -> str:
    """msgspec's words as a sentence about ``name``."""
    match = re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`", said)
    if match:
        wanted = " or ".join(
            dict.fromkeys(
                _KINDS.get(k.strip(), k.strip()) for k in match[1].split("|") if k.strip() != "null"
            )
        )
        return f"'{name}' must be {wanted}, and this is {_KINDS.get(match[2], match[2])}."
    if said.endswith((" >= 0", " >= 0.0")):
        return f"'{name}' must be 0 or more."
    if "matching regex" in said:
        return f"'{name}' must be lower case letters, digits and hyphens."
    return f"'{name}': {said[:1].lower()}{said[1:]}."


def _place(at: PathInFile) -> str:
    match at:
        case ():
            return "at the top of a flow"
        case ("ends", name):
            return f"in end '{name}'"
        case ("nodes", name):
            return f"in node '{name}'"
        case ("nodes", name, "answers", answer):
            return f"in answer '{answer}' of node '{name}'"
        case ("nodes", name, *inner, int()) | ("nodes", name, *inner):
            return f"in '{inner[-1]}' of node '{name}'"
    return "here"
