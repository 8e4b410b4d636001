"""What can be switched in an engine: each of its optimizers, and each option whose present value
leaves it more freedom than the plainest one. One space, so that a fault that needs two of them
together is found too. Beside these the option by which it computes exactly."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from narrowdown.engines.declaration import Option
from narrowdown.engines.spec import OFF, parse
from narrowdown.engines.views import EngineInfo

Family: TypeAlias = tuple[str, ...]  # names that belong together


class Switches(msgspec.Struct, frozen=True):
    """``optimizers``: those that are on in ``engine``. ``options``: what is switched, as
    ``threads=4`` (the name alone where the engine chooses the value), with the ``(option, plain
    value)`` that switches it off. ``apart``: with all optimizers off nothing can be built."""

    engine: str
    optimizers: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, str]] = {}
    apart: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.optimizers, *self.options))

    @property
    def builds(self) -> int:
        """About how many builds a search for one of them takes at most: two for each halving, and
        each family where not all can be off; 0 where there is none."""
        families = len(group_by_family(self.names)) if self.apart else 1
        return families + 2 * len(self.names).bit_length() if self.names else 0

    def without(self, off: Iterable[str]) -> str:
        """The engine spec with these off."""
        gone = set(off)
        changed = (self.options[name] for name in gone & self.options.keys())
        spec = parse(self.engine).with_options(dict(changed))
        disabled = {*_split_names(spec.get(OFF)), *(gone & set(self.optimizers))}
        return str(spec.with_option(OFF, "+".join(sorted(disabled))) if disabled else spec)


def list_switches(engine: str, info: EngineInfo) -> Switches:
    """The switches of an engine."""
    spec = parse(engine)
    optimizers = (
        set(info.optimizers) - set(_split_names(spec.get(OFF))) if info.can("optimizers") else ()
    )
    options: dict[str, tuple[str, str]] = {}
    for option in info.options:
        value = spec.get(option.name) or option.usual
        if option.plain and value != option.plain:
            options[f"{option.name}={value}" if value else option.name] = (
                option.name,
                option.plain,
            )
    return Switches(engine, tuple(sorted(optimizers)), options, bool(optimizers) and info.apart)


def set_option(engine: str, info: EngineInfo, wanted: Callable[[Option], str]) -> str:
    """The engine's spec with the first option that has not the value that is wanted of it at that
    value; "" where there is none. ``wanted``: "" of an option of which nothing is."""
    spec = parse(engine)
    for option in info.options:
        if (value := wanted(option)) and (spec.get(option.name) or option.usual) != value:
            return str(spec.with_option(option.name, value))
    return ""


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split("+")))


def group_by_family(names: Iterable[str]) -> tuple[Family, ...]:
    """What stands before the first colon of a name is its family; an option, whose value may hold
    one, is its own. Early ones are left on first. A name that is its family's switches all of it,
    as a rule, and comes last."""
    families: dict[str, Family] = {}
    for name in sorted(names, key=lambda name: (not prepares(name), ":" not in name, name)):
        family = name if "=" in name else name.partition(":")[0]
        families[family] = (*families.get(family, ()), name)
    return tuple(families.values())


def prepares(name: str) -> bool:
    """Whether an optimizer changes the model without computing anything else: as a rule it only
    prepares the ground for another."""
    return name.startswith(
        (
            "ConstantFolding",
            "ConstantSharing",
            "CommonSubexpression",
            "Identity",
            "EliminateIdentity",
        )
    )
