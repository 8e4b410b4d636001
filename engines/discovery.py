"""Finds the engines: ours, and those of other packages, each by the entry point that names its
declaration.

The entry points of ours stand here too, as ``pyproject.toml`` has them (a test holds the two
equal): a checkout that is merely on ``PYTHONPATH`` has no entry points, and a spec that names one
of ours is checked without a look at what is installed. That look is made once a process, when
another name is given or a list is asked for.
"""

import contextlib
import functools
import importlib
import io
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

import msgspec

from narrowdown.engines.declaration import Declaration, Option

GROUP = "narrowdown.engines"
OURS: Mapping[str, str] = {
    "onnxruntime": "narrowdown.engines.backends.onnxruntime:DECLARATION",
    "reference": "narrowdown.engines.backends.reference:DECLARATION",
    "emulate": "narrowdown.engines.backends.emulate:DECLARATION",
    "openvino": "narrowdown.engines.backends.openvino:DECLARATION",
    "tensorrt": "narrowdown.engines.backends.tensorrt:DECLARATION",
    "tensorrt_rtx": "narrowdown.engines.backends.tensorrt:RTX",
    "golden": "narrowdown.engines.backends.golden:DECLARATION",
    "command": "narrowdown.engines.backends.command:DECLARATION",
    "torch": "narrowdown.engines.backends.command:TORCH",
}


class Plugin(msgspec.Struct, frozen=True):
    """An engine of another package. ``package`` and ``version``: which one. Exactly one of
    ``declared`` and ``broken``, a sentence on why it cannot be used, is there."""

    name: str
    package: str
    version: str
    declared: Declaration | None = None
    broken: str = ""

    @property
    def source(self) -> str:
        """``drift-engine 0.1``."""
        return f"{self.package} {self.version}".strip()


def find(name: str) -> Declaration | None:
    """The declaration of an engine; None where there is none of that name that can be used."""
    if name in OURS:
        return _ours(name)
    return next(
        (plugin.declared for plugin in plugins() if plugin.name == name and plugin.declared), None
    )


def ours() -> Mapping[str, Declaration]:
    return {name: _ours(name) for name in OURS}


def engines() -> Mapping[str, Declaration]:
    """Every engine that can be used, by name: ours, then those of other packages."""
    return {**ours(), **{p.name: p.declared for p in plugins() if p.declared}}


@functools.cache
def plugins() -> tuple[Plugin, ...]:
    """The engines of other packages, sorted by name, broken ones too. Never raises
    ``Exception``."""
    return _chosen(entry_points(group=GROUP))


@functools.cache
def _ours(name: str) -> Declaration:
    module, _, attribute = OURS[name].partition(":")
    declared: Declaration = getattr(importlib.import_module(module), attribute)
    return declared


def _chosen(points: Iterable[EntryPoint]) -> tuple[Plugin, ...]:
    """A plug-in for each entry point that is not ours. An installation that is found twice counts
    once; of two packages that bring the same name the first by name has it."""
    found: list[Plugin] = []
    owners = dict.fromkeys(OURS, "Narrowdown")
    # Ours go first: who brings an entry point stands in its package's metadata, a page that would
    # be parsed for each.
    others = {point: _package(point) for point in points if OURS.get(point.name) != point.value}
    for point in sorted(others, key=lambda p: (p.name, *others[p], p.value)):
        plugin = Plugin(point.name, *others[point])
        if (plugin.name, plugin.source) in {(p.name, p.source) for p in found}:
            continue
        owner = owners.setdefault(point.name, plugin.source)
        taken = (None, f"{owner} has an engine of that name already.")
        declared, broken = _load(point) if owner == plugin.source else taken
        found.append(msgspec.structs.replace(plugin, declared=declared, broken=broken))
    return tuple(found)


def _package(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist else ("an unnamed package", "")


def _load(point: EntryPoint) -> tuple[Declaration | None, str]:
    """(A plug-in's declaration, or None, why it cannot be used). What it prints goes nowhere: our
    own output may be read by a program."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            declared = point.load()
            fault = fault_of(declared, point.name)
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())[:300]
        why = f"{type(error).__name__}: {said}" if said else type(error).__name__
        return None, f"Its declaration {point.value} does not load ({why})."
    return (
        (None, f"Its declaration {point.value} cannot be used: {fault}.")
        if fault
        else (declared, "")
    )


def fault_of(declared: object, name: str) -> str:
    """What is wrong with the declaration of an engine of this name, as the end of a sentence; ""
    where nothing is."""
    if not isinstance(declared, Declaration):
        return f"it is of the type {type(declared).__name__}, not a narrowdown.engines.declaration.Declaration"
    try:
        msgspec.convert(msgspec.structs.asdict(declared), Declaration)
    except msgspec.ValidationError as error:
        return f"it is not valid: {error}"
    if declared.name != name:
        return f"it is of '{declared.name}', and the entry point is named '{name}'"
    if not _word(name):
        return f"'{name}' is not a name; use letters, digits, - and _"
    for field in ("summary", "module", "package", "install"):
        if not getattr(declared, field):
            return f"its {field} is empty"
    for option in declared.options:
        if fault := _fault_of_option(option):
            return fault
    names = [option.name for option in declared.options]
    if twice := [option for option in names if names.count(option) > 1]:
        return f"its option '{twice[0]}' is declared twice"
    if strange := [
        key for key in (*dict(declared.under_test), *declared.lists) if key not in names
    ]:
        return f"it says something of '{strange[0]}', which is not among its options"
    return ""


def _fault_of_option(option: Option) -> str:
    try:
        msgspec.convert(msgspec.structs.asdict(option), Option)
    except msgspec.ValidationError as error:
        return f"its option {option.name!r} is not valid: {error}"
    if not _word(option.name):
        return f"{option.name!r} is not the name of an option; use letters, digits, - and _"
    if option.choices and option.default not in (None, "", *option.choices):
        return f"its option '{option.name}' has the default {option.default!r}, which is not one of its choices"
    return ""


def _word(text: str) -> bool:
    return bool(text) and all(c.isalnum() or c in "_-" for c in text)
