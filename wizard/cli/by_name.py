"""Options by name and value, as programs give them, in place of words of a command line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from narrowdown.wizard import BadUsage


def words_of(command: str, model: str, options: Mapping[str, Any]) -> list[str]:
    """The words of a command on a model. An option's name is the command line's, with ``_`` for
    ``-``; a value is one value, a list of them (given once each), a mapping (``NAME:VALUE`` each)
    or True (an option without a value). None, False and "" leave it out. Numbers in a row are one
    value, ``[1,3,224,224]``. Raises Refusal (exit 2)."""
    words = [command]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        words += [option if each is True else f"{option}={each}" for each in _values(option, value)]
    return [*words, "--", model]


def _values(option: str, value: object) -> Iterator[object]:
    if value is None or value is False or value == "":
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from (f"{name}:{one}" if name else one for one in _values(option, inner))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(one, int | float) for one in value):
            yield f"[{','.join(map(str, value))}]"
        else:
            for one in value:
                yield from _values(option, one)
    elif isinstance(value, bool | int | float | str) or hasattr(value, "__fspath__"):
        yield value
    else:
        raise BadUsage(
            f"{option}: '{type(value).__name__}' is no value; give text, a number, a list or a dict."
        )
