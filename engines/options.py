"""Whether an engine spec is right, and what its options say. Text only: no native library, no
numpy.

The command line checks a spec here before a session exists; the backends read their options' values
here.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from narrowdown.engines import discovery
from narrowdown.engines.declaration import Cure, Declaration, Found, Option
from narrowdown.engines.nearest import spell_out, suggestion
from narrowdown.engines.spec import EngineSpec, name_of_engine, parse

# Of KEY=VALUE, what makes a provider load the files named in VALUE, whatever these are called; and
# files that are libraries whatever the key is.
_LOADS = re.compile(r"lib|backend|plugin", re.IGNORECASE)
_LIBRARY = re.compile(r"\.(so(\.[0-9]+)*|dll|dylib)$", re.IGNORECASE)
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class BrokenEngine(ValueError):
    """The engine comes from a package whose declaration cannot be used; the message says why and
    whose it is."""


def check(text: str | EngineSpec) -> EngineSpec:
    """The spec with every value in its canonical spelling.

    Raises ``ValueError`` with a sentence, and the nearest name where there is one, for an unknown
    engine, key or value. Says nothing about whether the engine is installed.
    """
    try:
        spec = parse(_keyed(text)) if isinstance(text, str) else text
    except ValueError as error:
        if named := name_of_engine(str(text)):
            declared_as(named)
        raise ValueError(f"{error}{_suggest_key(str(text))}") from None
    declared = declared_as(spec.name)
    if declared.refusal:
        raise ValueError(f"{declared.refusal}.")
    options = {o.name: o for o in declared.options}
    canonical: list[tuple[str, str]] = []
    for key, value in spec.options:
        if key not in options:
            takes = f" It takes {', '.join(options)}." if options else " It takes none."
            raise ValueError(
                f"{spec.name} has no option '{key}'.{suggestion(key, options, ' ')}{takes}"
            )
        if value != "":
            canonical.append((key, _text(_value(declared, options[key], value))))
    return EngineSpec(spec.name, tuple(sorted((k, v) for k, v in canonical if v != "")))


def _keyed(text: str) -> str:
    """``golden:out.npz`` as ``golden:files=out.npz``: a value alone is that of the option that the
    engine declares for it."""
    name, colon, rest = text.strip().partition(":")
    declared = discovery.find(name) if colon else None
    if (
        declared is None
        or not declared.bare
        or rest.startswith(tuple(f"{o.name}=" for o in declared.options))
    ):
        return text
    return f"{name}:{declared.bare}={rest}"


def _suggest_key(text: str) -> str:
    """``emulate:fp16``: the option that takes such a value; "" where none does."""
    name, _, rest = text.strip().partition(":")
    declared = discovery.find(name)
    for part in rest.split(",") if declared is not None else ():
        for option in declared.options if declared is not None else ():
            if meant := _meant(option, part.strip()):
                return f" Did you mean '{option.name}={meant}'?"
    return ""


def recorded(text: str) -> bool:
    """Whether the engine of this spec gives what was recorded and computes nothing; False of one
    that is not known here, and of a text that is no spec, as a journal of somebody else may
    hold."""
    declared = discovery.find(name_of_engine(text))
    return declared is not None and declared.recorded


def original(text: str) -> bool:
    """Likewise, whether it computes what the model was exported from."""
    declared = discovery.find(name_of_engine(text))
    return declared is not None and declared.original


def values(spec: EngineSpec) -> dict[str, Any]:
    """Every option of the engine with its typed value, defaults filled in; lists are tuples. Raises
    ``ValueError``."""
    given, declared = dict(check(spec).options), declared_as(spec.name)
    return {
        o.name: _value(declared, o, given[o.name]) if o.name in given else o.default
        for o in declared.options
    }


def tell_apart(
    found: Found,
    cure: Cure,
    say: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    usual: Mapping[str, Any],
) -> dict[str, Literal["cure", "given", "measured"]]:
    """Why a text to paste says something of an option: it is what cures, as the engine that fails
    has it otherwise; the user gave it; or it was only measured so, as our default is not the
    engine's own. Of all other options it says nothing.

    ``say``: what is said of each option, made of typed values; ``usual``: the engine's own values
    where our defaults are others.
    """
    now, before = say(found.chosen), say((cure.failing or found).chosen)
    own = say({**values(EngineSpec(found.spec.name)), **usual})
    why: dict[str, Literal["cure", "given", "measured"]] = {}
    for option, said in now.items():
        if said != before[option]:
            why[option] = "cure"
        elif said != own[option]:
            why[option] = "given" if found.spec.get(option) else "measured"
    return why


def loaded(text: str) -> tuple[tuple[str, str], ...]:
    """(what it is, path) of each file that an engine of this spec would load or parse, as the
    engine itself reads the spec; none for a text that is no spec, which no engine takes either."""
    found: list[tuple[str, str]] = []
    for option, value in _given(text):
        if option.type in ("file", "library"):
            paths = value if option.type == "library" else (value,)
            found += [(option.what or option.name, path) for path in paths]
        elif option.type == "list" and option.what:
            found += [(option.what, path) for pair in value for path in libraries(pair)]
    return tuple(found)


def _given(text: str) -> list[tuple[Option, Any]]:
    """The options of an engine of this spec that have a value, in the engine's order; none for a
    text that is no spec."""
    try:
        spec = parse(text)
        chosen = values(spec)
    except ValueError:
        return []
    return [(o, chosen[o.name]) for o in declared_as(spec.name).options if chosen[o.name]]


def libraries(pair: str) -> tuple[str, ...]:
    """Paths in a KEY=VALUE that whoever is given it would load as code:
    ``backend_path=/opt/libQnnHtp.so``."""
    key, _, value = pair.partition("=")
    loads = bool(_LOADS.search(key))
    return tuple(
        p for p in value.split(";") if _LIBRARY.search(p) or (loads and ("/" in p or "\\" in p))
    )


def split_paths(text: str) -> tuple[str, ...]:
    """The paths, or KEY=PATH, that '+' joins: one that is there keeps each '+' of its own, the
    longest first."""
    found, parts = [], text.split("+")
    while parts:
        whole = (n for n in range(len(parts), 1, -1) if _is_there("+".join(parts[:n])))
        taken = next(whole, 1)
        found.append("+".join(parts[:taken]))
        del parts[:taken]
    return tuple(dict.fromkeys(filter(None, map(str.strip, found))))


def _is_there(text: str) -> bool:
    key, _, path = text.partition("=")
    paths = [text] if "+" in key else [text, path]
    return any(os.path.exists(os.path.expanduser(path)) for path in paths if path)  # noqa: PTH110, PTH111


def with_libraries(pairs: Iterable[str], place: Callable[[str], str]) -> tuple[str, ...]:
    """The same pairs, each path that ``libraries`` finds put through ``place``."""
    changed = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        own = libraries(pair)
        changed.append(
            key + equals + ";".join(place(p) if p in own else p for p in value.split(";"))
        )
    return tuple(changed)


def commands(text: str) -> tuple[tuple[str, str], ...]:
    """(what it is, command line) of each program that an engine of this spec would start; none for
    a text that is no spec."""
    return tuple((o.what or o.name, value) for o, value in _given(text) if o.type == "command")


SETTING = "engine setting"


def settings(text: str) -> tuple[tuple[str, str], ...]:
    """(what it is, ``ENGINE:OPTION=VALUE``) of each value that may do more than change what is
    computed: text that its option does not declare to be harmless, where no file or command is
    asked about in its place; none for a text that is no spec."""
    found = []
    for option, given in _given(text):
        if option.type not in ("str", "list") or option.choices or given == option.default:
            continue
        for value in given if option.type == "list" else (given,):
            files = option.what and libraries(value) == tuple(value.partition("=")[2].split(";"))
            if not files and not re.fullmatch(option.harmless, value):
                found.append((SETTING, f"{parse(text).name}:{option.name}={value}"))
    return tuple(found)


def options_with(name: str, *kinds: str) -> tuple[Option, ...]:
    """The options of an engine that are of these types: ``file`` and ``library`` (paths),
    ``command``, or ``list``, of which those alone whose KEY=VALUE may name libraries. Raises
    ``ValueError`` for an unknown engine."""
    found = (o for o in declared_as(name).options if o.type in kinds)
    return tuple(o for o in found if o.type != "list" or o.what)


def families(text: str) -> frozenset[str]:
    """Whose code computes with this spec: engines that share any of it may be wrong alike. Raises
    ``ValueError``."""
    spec = parse(text)
    declared = declared_as(spec.name)
    guests = (family for option, value, family in declared.guests if spec.get(option) == value)
    return frozenset((declared.family or declared.name, *guests))


def declared_as(name: str) -> Declaration:
    """The declaration of an engine. Raises ``ValueError`` with a sentence."""
    if declared := discovery.find(name):
        return declared
    if broken := next((p for p in discovery.plugins() if p.name == name), None):
        raise BrokenEngine(
            f"The engine '{name}' of {broken.source} cannot be used. {broken.broken}"
        )
    shown = [d.name for d in discovery.engines().values() if not d.hidden and not d.refusal]
    meant = suggestion(spell_out(name, shown) or name, shown, " ")
    raise ValueError(f"There is no engine '{name}'.{meant} Known: {', '.join(shown)}.")


def _value(declared: Declaration, option: Option, text: str) -> Any:
    engine, key = declared.name, option.name
    if option.type in ("list", "library"):
        holds_paths = option.type == "library" or option.what
        names = (
            split_paths(text)
            if holds_paths
            else tuple(dict.fromkeys(filter(None, map(str.strip, text.split("+")))))
        )
        return declared.lists[key](names) if key in declared.lists else names
    if option.type == "bool":
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ValueError(f"{engine}: {key}={text} is neither true nor false.")
        return text.lower() in _TRUE
    if option.type in ("int", "float"):
        try:
            number = int(text) if option.type == "int" else float(text)
        except ValueError:
            kind = "a whole number" if option.type == "int" else "a number"
            raise ValueError(f"{engine}: {key}={text} is not {kind}.") from None
        low, high = option.least, option.most
        if (
            not (low is None or number >= low)
            or not (high is None or number <= high)
            or number != number
        ):
            bounds = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
            raise ValueError(f"{engine}: {key}={text} is out of range; it must be {bounds}.")
        return number
    if option.choices and text not in option.choices:
        if meant := _meant(option, text):
            return meant
        raise ValueError(
            f"{engine}: {key}={text} is not one of {', '.join(option.choices)}.{suggestion(text, option.choices, ' ')}"
        )
    return text


def _meant(option: Option, text: str) -> str:
    """The choice that a text is but for its case, or for a type's other name (``f16`` of ``fp16``);
    "" where there is none."""
    plain: Callable[[str], str] = lambda word: word.casefold().replace("fp", "f")  # noqa: E731
    return next((choice for choice in option.choices if plain(choice) == plain(text)), "")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "+".join(value)
    return str(value)
