"""One known bug as its file states it. Pure: names, numbers and text."""

import re
from typing import Literal, TypeAlias

import msgspec

Scalar: TypeAlias = int | float | str
Stated: TypeAlias = Scalar | list[Scalar]
# What an attribute may be asked for beside a value: ``in`` a list, ``not`` a value; ``absent`` stands
# for one that is not stated. Other words are those of earlier versions, in journals.
Asked: TypeAlias = Stated | dict[str, Stated]


class Pattern(msgspec.Struct, frozen=True):
    """A node of the pattern. Fields that earlier versions had are read over: journals hold them.
    ``op``: one of these operators. ``reads``: places in the pattern of nodes whose outputs it
    reads. ``attributes``: name to what it must be. ``dtype``: of its first input, numpy's name;
    ``rank``: of that input. ``weight``: places of inputs that must be weights; ``input``: of some
    that must not be; ``given``: of some that must be there. ``opset``: of the model, the first and
    the last; 0: whichever. ``axes``: it must state its axes, as an attribute or an input."""

    op: tuple[str, ...]
    domain: str = ""
    reads: tuple[int, ...] = ()
    attributes: dict[str, Asked] = {}
    dtype: tuple[str, ...] = ()
    rank: int = -1
    weight: tuple[int, ...] = ()
    input: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    opset: tuple[int, int] = (0, 0)
    axes: bool = False


class MadeTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor of a construction: an input or a weight of this shape, drawn evenly from ``range``
    (one number: that number everywhere), or with these ``values``. ``step``: what is drawn is
    rounded to multiples of it, so that many are equal. ``special``: what its first element is in
    place of that. ``open``: dimensions of an input whose size the model leaves open."""

    dtype: str
    shape: tuple[int, ...]
    range: tuple[float, float] = (-1.0, 1.0)
    values: list[int | float] | None = None
    special: Literal["", "nan", "inf"] = ""
    step: float = 0.0
    open: tuple[int, ...] = ()


class MadeNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Stated] = {}
    domain: str = ""


class Construction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A small model that shows the bug: our own declaration of it, no file of a thread.
    ``outputs``: name to dtype."""

    opset: int
    inputs: dict[str, MadeTensor]
    nodes: tuple[MadeNode, ...]
    outputs: dict[str, str]
    weights: dict[str, MadeTensor] = {}


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``thread``: ``owner/repository#number``, where it was reported; "" where no public thread is
    known. ``says``: what goes wrong, one sentence. ``wrong_in`` and ``right_in``: releases of which
    the thread says so; ``ran``: release to what our own run of the construction gave. ``since``,
    ``mended``: the first release that has it and the first that has it no more; "" where nobody
    said. ``precision``: what the engine must compute in; none: whatever. ``fails``: wrong values,
    or the engine refuses the model. ``switch_off``: switches of the engine that cure it.
    ``looks``: none where the thread names no operator; nothing looks like it then.
    ``settings``: options that the construction is run with. ``fires``, ``beside``: its trigger, as
    changes of the construction (``engines.known.variant``) with which it still fails, and with
    which it does not."""

    schema: Literal[1]
    id: str
    engine: str
    says: str
    condition: str
    cure: str
    looks: tuple[Pattern, ...]
    thread: str = ""
    more_threads: tuple[str, ...] = ()
    precision: tuple[str, ...] = ()
    device: str = ""
    since: str = ""
    mended: str = ""
    wrong_in: tuple[str, ...] = ()
    right_in: tuple[str, ...] = ()
    fails: Literal["wrong", "refused"] = "wrong"
    switch_off: tuple[str, ...] = ()
    make: Construction | None = None
    fires: tuple[dict[str, Stated], ...] = ()
    beside: tuple[dict[str, Stated], ...] = ()
    settings: dict[str, str] = {}
    ran: dict[str, Literal["wrong", "right", "refused"]] = {}
    unverified: str = ""  # what nobody here could see, one sentence

    @property
    def name(self) -> str:
        """For people: its thread, else its id."""
        return self.thread or self.id

    def affects(self, version: str) -> bool:
        """Whether a release is between ``since`` and ``mended``, as far as anybody knows; without a
        construction that could be tried, whether it is one that the thread calls wrong."""
        at = release(version)
        if not at:
            return True
        if self.make is None and self.wrong_in:
            return at[:2] in {release(wrong)[:2] for wrong in self.wrong_in}
        return not (self.since and at < release(self.since)) and not (
            self.mended and at >= release(self.mended)
        )


def release(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: ``2025.2.0-19140-...`` is (2025, 2, 0); () where it
    begins with none."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(n) for n in found.group().split(".")) if found else ()
