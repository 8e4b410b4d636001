"""Engine specs: ``NAME[:key=value,...]``, lists joined with ``+``, a comma inside a value as
``\\,``. Text in, canonical text out."""

import re
from collections.abc import Mapping

import msgspec

_COMMA = re.compile(r"(?<!\\),")
OFF = "disabled_optimizers"  # the option that says which of an engine's switches are off


class EngineSpec(msgspec.Struct, frozen=True):
    """A parsed spec; ``str()`` is canonical: keys sorted. Whether keys exist is the backend's to
    say."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        written = (f"{k}={v.replace(',', chr(92) + ',')}" for k, v in self.options)
        return self.name + (":" + ",".join(written) if self.options else "")

    def get(self, key: str, default: str = "") -> str:
        return dict(self.options).get(key, default)

    def with_option(self, key: str, value: str) -> "EngineSpec":
        """The spec with one option set; an empty value removes it."""
        return self.with_options({key: value})

    def with_options(self, values: Mapping[str, str]) -> "EngineSpec":
        """The spec with these options set; an empty value removes one."""
        options = {**dict(self.options), **values}
        return EngineSpec(self.name, tuple(sorted((k, v) for k, v in options.items() if v != "")))

    def list_changes(self, given: "EngineSpec") -> tuple[str, ...]:
        """``key=value`` of each option that ``given`` has not, or has otherwise."""
        return tuple(f"{k}={v}" for k, v in self.options if given.get(k) != v)


def parse(text: str) -> EngineSpec:
    """Raises ``ValueError`` with a sentence for text that is not ``NAME[:key=value,...]``."""
    name, _, rest = text.strip().partition(":")
    if not name or not all(c.isalnum() or c in "_-" for c in name):
        raise ValueError(
            f"'{text}' does not name an engine; write NAME or NAME:key=value,key=value."
        )
    options: dict[str, str] = {}
    for part in filter(None, _COMMA.split(rest)):
        key, eq, value = part.replace("\\,", ",").partition("=")
        if not eq or not key.strip():
            hint = "; a comma inside a value is written \\," if options else ""
            raise ValueError(f"'{part}' in '{text}' is not key=value{hint}.")
        if value.endswith("\\"):
            raise ValueError(
                f"'{value}' in '{text}' ends in a backslash, which would hide the comma behind it."
            )
        if key.strip() in options:
            raise ValueError(f"'{key.strip()}' is given twice in '{text}'.")
        options[key.strip()] = value.strip()
    return EngineSpec(name.strip(), tuple(sorted(options.items())))


def name_of_engine(text: str) -> str:
    """The engine's name alone, whatever follows it; never an error."""
    return text.partition(":")[0].strip()


def unswitched(text: str) -> str:
    """The spec with all switches on. An engine's version and device are the same without some."""
    return str(parse(text).with_option(OFF, "")) if OFF in text else text


def unquantized(text: str) -> bool:
    """Whether the spec asks for a Q/DQ model as it was before it was quantized."""
    spec = parse(text)
    return bool(spec.get("model")) or spec.get("quantization") == "bypass"


def of_the_same(text: str, other: str) -> str:
    """The spec ``text``, asked for the same float original of a Q/DQ model as ``other`` is."""
    asked = parse(other)
    return str(parse(text).with_options({k: asked.get(k) for k in ("model", "quantization")}))
