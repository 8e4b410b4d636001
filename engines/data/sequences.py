"""Models whose outputs go back into their inputs: which outputs, and what each step is fed.
Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.data import InputProblem
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import LoadInputs

CHOICE = "=argmax"  # of the largest value
USUAL = 64  # steps, where neither the user nor an axis of the inputs says how many
# Words of names that say which side of a step a tensor is on, and nothing of what it holds.
_SIDES = re.compile(
    r"past|present|prev(?:ious)?|next|new|old|updated|curr?(?:ent)?|initial|final|out(?:put)?|in(?:put)?"
)
_TOKENS = re.compile("(decoder)?(ids|tokens?)")
Arrays: TypeAlias = Mapping[str, Array]
Dims: TypeAlias = tuple[int | str, ...] | None
Declared: TypeAlias = Mapping[str, tuple[str, Dims]]  # name -> dtype, dimensions


class Loop(msgspec.Struct, frozen=True, omit_defaults=True):
    """What goes back, input -> output: ``carry`` as it is; ``tokens``: of the output's last row the
    place of its largest value. ``own``: an engine is fed the tokens that it chose, else those of
    the reference."""

    carry: dict[str, str] = {}
    tokens: dict[str, str] = {}
    own: bool = False

    @property
    def inputs(self) -> frozenset[str]:
        """Those that the step before gives."""
        return frozenset((*self.carry, *self.tokens))


def resolve(probe: LoadInputs, inputs: Collection[str], outputs: Collection[str]) -> Loop:
    """The loop that the patterns of the probe mean: ``OUTPUT:INPUT``, ``*`` standing for the same
    text in both, and ``OUTPUT:INPUT=argmax``. Raises ``InputProblem``."""
    if not all(pattern.endswith(CHOICE) for pattern in probe.carry_token):
        raise InputProblem(f"--carry-token: OUTPUT:INPUT{CHOICE} is the one way to choose a token.")
    texts = [pattern.removesuffix(CHOICE) for pattern in probe.carry_token]
    carry, tokens = (
        dict(pair for text in patterns for pair in _match(text, inputs, outputs).items())
        for patterns in (probe.carry, texts)
    )
    return Loop(carry, tokens, probe.own_tokens)


def _match(pattern: str, inputs: Collection[str], outputs: Collection[str]) -> dict[str, str]:
    # Names may hold colons themselves: the pattern is split where both sides are known. Of several *
    # each would be tried with each text.
    for at in (m.start() for m in re.finditer(":", pattern)):
        (head, star, tail), right = pattern[:at].partition("*"), pattern[at + 1 :]
        found = re.compile(f"{re.escape(head)}{'(.+)' if star else '()'}{re.escape(tail)}")
        texts = {name: m[1] for name in outputs if (m := found.fullmatch(name))}
        pairs = {right.replace("*", text): name for name, text in texts.items()}
        if pairs and all(name in inputs for name in pairs):
            return pairs
    raise InputProblem(
        f"--carry: '{pattern}' pairs no output with an input; write OUTPUT:INPUT, such as 'present.*:past.*'. "
        f"Outputs: {join_some(list(outputs))}. Inputs: {join_some(list(inputs))}."
    )


def suggest(inputs: Declared, outputs: Declared) -> list[tuple[str, str]]:
    """(option, pattern) of the pairs that names and shapes suggest, and of what chooses a token; none
    where nothing but them goes in: a model of pictures that gives a picture is no loop."""
    pairs = [
        (name, other)
        for name, (dtype, dims) in outputs.items()
        for other, (same, there) in inputs.items()
        if _core(name) == _core(other) != ""
        and name != other
        and dtype == same
        and _fit(dims, there)
    ]
    if not pairs or len(pairs) == len(inputs):
        return []
    found = dict.fromkeys(_shorten(*pair) if len(pairs) > 1 else ":".join(pair) for pair in pairs)
    tokens = [
        f"{scores}:{ids}{CHOICE}"
        for scores in outputs
        for ids, (dtype, _) in inputs.items()
        if "logits" in scores and _TOKENS.fullmatch(_core(ids)) and "int" in dtype
    ]
    return [*(("carry", pattern) for pattern in found), *(("carry_token", t) for t in tokens[:1])]


def _core(name: str) -> str:
    """What a name says beside the side of the step: ``past_key_values.0.key`` and
    ``present.0.key`` are both ``0key``, ``h0`` and ``hn`` both ``h``."""
    words = re.sub(r"key_values|[^a-z0-9]", "", name.lower())
    return re.sub(r"(?<=[a-z])[0n]$", "", _SIDES.sub("", words))


def _fit(one: Dims, other: Dims) -> bool:
    """Whether a value of one shape may be fed as the other. Vectors and numbers are no state."""
    if one is None or other is None or len(one) != len(other) or len(one) < 2:
        return False
    return all(
        a == b or isinstance(a, str) or isinstance(b, str) for a, b in zip(one, other, strict=True)
    )


def _shorten(output: str, given: str) -> str:
    """The pair with ``*`` for what both names end in."""
    m = re.fullmatch(r"(.*?)([^a-z\n].*)\n(.*)\2", f"{output}\n{given}")
    return f"{m[1]}*:{m[3]}*" if m else f"{output}:{given}"


def take_back(loop: Loop, fed: Arrays, got: Arrays) -> dict[str, Array]:
    """What a step's outputs are for the next one, by input."""
    back = {name: got[output] for name, output in loop.carry.items()}
    for name, output in loop.tokens.items():
        scores, like = got[output], fed[name]
        last = scores[:, -1] if scores.ndim == 3 else scores
        chosen = last.argmax(axis=-1).astype(like.dtype)
        back[name] = chosen.reshape((*chosen.shape, *[1] * (like.ndim - chosen.ndim)))
    return back


def count_steps(raw: Arrays, dims: Mapping[str, Dims], wanted: int) -> int:
    """How many steps a sequence has: as many as are ``wanted``, else as its shortest input has.
    Raises ``InputProblem`` where that is too short."""
    lengths = {name: len(a) for name, a in raw.items() if is_stepped(a, dims.get(name))}
    least = min(lengths, key=lambda name: lengths[name], default="")
    if least and wanted > lengths[least]:
        raise InputProblem(
            f"The input '{least}' holds {lengths[least]} steps, and --steps asks for {wanted}."
        )
    return wanted or lengths.get(least, USUAL)


def is_stepped(array: Array, dims: Dims) -> bool:
    """Whether an input has an axis of steps in front of what the model takes."""
    return dims is not None and array.ndim == len(dims) + 1


def take_step(raw: Arrays, dims: Mapping[str, Dims], step: int) -> dict[str, Array]:
    """What a sequence holds for one step, by input; an input without an axis of steps is the same
    in all."""
    return {n: a[step] if is_stepped(a, dims.get(n)) else a for n, a in raw.items()}


def first_shape(
    dims: Sequence[int | str], known: Mapping[str, int], cache: Sequence[int] = ()
) -> tuple[int, ...]:
    """The shape of a state that is not given: nothing has been carried yet along a dimension that
    no other input has; dimension 0 and what is called so are batches. ``cache``: how many heads one
    has, and their size: those of ``[..., heads, past, size]``."""
    around = dims[-3::2] if len(dims) > 3 else ()  # heads and their size
    told = {str(d): n for d, n in zip(around, cache, strict=False)} | {**known}
    return tuple(
        d if isinstance(d, int) else told.get(d, 1 if axis == 0 or "batch" in d.lower() else 0)
        for axis, d in enumerate(dims)
    )


def follow(loop: Loop, fed: Arrays, back: Arrays, kinds: Mapping[str, str]) -> dict[str, Array]:
    """Positions and masks for the next step, as they were; where a carried tensor has grown
    positions go on by one, and a mask has one more column, as its last. ``kinds``: input ->
    ``positions`` or ``mask``."""
    if all(back[name].shape == fed[name].shape for name in loop.carry):
        return {name: fed[name] for name in kinds}
    return {
        name: fed[name][..., -1:] + 1
        if kind == "positions"
        else np.concatenate([fed[name], fed[name][..., -1:]], axis=-1)
        for name, kind in kinds.items()
        if fed[name].ndim
    }
