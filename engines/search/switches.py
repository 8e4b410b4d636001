"""What can be switched in an engine: each of its optimizers, and each option whose present value
leaves it more freedom than the plainest one. One space, so that a fault that needs two of them
together is found too."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from narrowdown.engines.declaration import Option
from narrowdown.engines.spec import parse
from narrowdown.engines.views import EngineInfo

_OFF = "disabled_optimizers"


class Switches(msgspec.Struct, frozen=True):
    """``optimizers``: those that are on in ``engine``. ``options``: what is switched, as
    ``threads=4`` (the name alone where the engine chooses the value), with the ``(option, plain
    value)`` that switches it off."""

    engine: str
    optimizers: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, str]] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.optimizers, *self.options))

    def without(self, off: Iterable[str]) -> str:
        """The engine spec with these off."""
        spec, gone = parse(self.engine), set(off)
        for name in gone & self.options.keys():
            spec = spec.with_option(*self.options[name])
        disabled = {*_split_names(spec.get(_OFF)), *(gone & set(self.optimizers))}
        return str(spec.with_option(_OFF, "+".join(sorted(disabled))) if disabled else spec)


def list_switches(engine: str, info: EngineInfo) -> Switches:
    """The switches of an engine."""
    spec = parse(engine)
    optimizers = (
        set(info.optimizers) - set(_split_names(spec.get(_OFF))) if info.can("optimizers") else ()
    )
    options: dict[str, tuple[str, str]] = {}
    for option in info.options:
        value = spec.get(option.name) or option.usual
        if option.plain and value != option.plain:
            options[f"{option.name}={value}" if value else option.name] = (
                option.name,
                option.plain,
            )
    return Switches(engine, tuple(sorted(optimizers)), options)


def find_exact(engine: str, info: EngineInfo) -> str:
    """The engine's spec with FP32 computed as FP32; "" where it is, or where no option says so. On
    an H100 basic_pitch with everything in FP32 is wrong by 0.02 % or 1.23 %, as TensorRT's timing
    decides about TF32."""
    return set_option(engine, info, lambda option: option.exact)


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
