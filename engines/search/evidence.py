"""What the rules that name a cause read, and the words in which they show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking.engine_forms import ALIKE
from narrowdown.engines.compare.judge import for_parts, limit
from narrowdown.engines.compare.say import say_amount, say_part
from narrowdown.engines.findings import Case, Findings, Suspect
from narrowdown.engines.graph import THROUGH
from narrowdown.engines.graph.storage import largest_finite, smallest_positive, unit_roundoff
from narrowdown.engines.probe import Score

# Times that are clearly more, where what was seen lies far from it on both sides. A faultless
# engine is nearer to the reference by 86 times and more where the kernel was at fault, by 1 where
# the precision was; a jump is 1,600 to 21,000 times larger than what was read, an error that is
# passed on 1.1 times.
FAULTLESS = 10.0
# What rounding alone makes of a value: one rounding of each of two operands, one of the result, one
# for luck (0.1 to 0.43 of it seen; the one Add that was off for another reason: 15.7). A difference
# that is off by more, in relation, than its operands are has lost digits (15 to 4,200 seen).
ROUNDINGS = 4.0

# What a rule has found: whatever its sentence names in braces.
Facts: TypeAlias = Mapping[str, object]


class Cause(msgspec.Struct, frozen=True):
    """``name``: one of ``engines.causes``. ``beyond``: the node whose true values the storage type
    cannot hold, by its name; empty for any other cause."""

    name: str
    evidence: str
    beyond: str = ""


class Inner(msgspec.Struct, frozen=True):
    """One tensor of the case as the engine computed it: its node's op and its score against the
    reference. ``op`` is empty for what the case is fed, which is scored as it was stored."""

    op: str
    node: str
    score: Score
    reads: tuple[str, ...] = ()  # names of the tensors that the node reads

    @property
    def called(self) -> str:
        """The node as people read it."""
        return f"{self.node} ({self.op})"


@dataclass(frozen=True)
class Evidence:
    """All that a rule may read. ``inner``: every tensor that the case is fed, then every one made
    inside it, topological. ``storage``: the type that the engine stores values in ("float16").

    Where watching the inside cures the case, which is then off by ``watched`` only, ``inner`` tells
    what the reference gives and nothing of the engine. ``said``: by the engine, where it refused.
    ``weights``: the largest magnitude of each weight that the case reads, where that was looked at;
    ``least``: the smallest that is not 0. ``makers``: of each tensor that the case is fed the node that
    computed it, as people read it. ``against_float``: whether the reference is the model as
    it was before it was quantized. ``emulating``: whether the engine is nothing but a rounding. ``runs``: of one build that a
    verdict takes; more than 1 where they differ. ``exported``: the reference is the program that the
    model was exported from, and nodes that are computed one by one fail alike."""

    findings: Findings
    case: Case
    inner: Sequence[Inner]
    storage: str
    suspect: Suspect | None = None
    watched: float | None = None
    said: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)
    makers: Mapping[str, str] = field(default_factory=dict)
    against_float: bool = True
    emulating: bool = False
    runs: int = 1
    exported: bool = False

    @cached_property
    def made(self) -> tuple[Inner, ...]:
        """What is made inside the case."""
        return tuple(i for i in self.inner if i.op)

    @cached_property
    def whole(self) -> Inner:
        """The case as one node, which reads what it is fed."""
        return Inner("", "", Score(""), tuple(i.score.name for i in self.inner if not i.op))

    @cached_property
    def scores(self) -> dict[str, Score]:
        """By the names of tensors."""
        return {i.score.name: i.score for i in self.inner}

    def list_read(self, node: Inner) -> list[Score]:
        """Of the tensors that a node reads those that were scored."""
        return [self.scores[name] for name in node.reads if name in self.scores]

    def measure_read(self, node: Inner) -> tuple[list[Score], float, float]:
        """(what it reads, the largest magnitude of it, the largest error)."""
        read = self.list_read(node)
        largest = max((s.absmax for s in read), default=0.0)
        return read, largest, max((s.rel_l2 for s in read), default=0.0)

    def find_loser(self, score: Score) -> tuple[str, Score]:
        """Who lost what a wrong tensor lacks, and how much that is: its maker, or who made what that
        reads, where that is as wrong or only moved. "" of an input of the model."""
        made = {i.score.name: i for i in self.made}
        while (inside := made.pop(score.name, None)) is not None:
            worst = max(self.list_read(inside), key=lambda s: s.rel_l2, default=None)
            brought = worst is not None and worst.rel_l2 >= inside.score.rel_l2 / ROUNDINGS
            if worst is None or not (brought or inside.op in THROUGH):
                return inside.called, score
            score = worst
        return self.makers.get(score.name, ""), score

    @property
    def part_metric(self) -> str:
        """What the outputs of a part are measured by."""
        return for_parts(self.findings.rule).metric

    @property
    def unit(self) -> float:
        """By what part of itself a value is rounded where it is stored."""
        return unit_roundoff(self.storage)

    @property
    def wrong(self) -> str:
        """How wrong the case's own outputs are: "wrong by 3 %"."""
        return say_part(self.case.own, self.part_metric, self.case.own_places)

    @property
    def end(self) -> str:
        """Where the storage type ends."""
        return say_number(largest_finite(self.storage))

    @property
    def flushed(self) -> str:
        """Below what a storage type has nothing but 0: the end of a sentence."""
        return f"and {self.storage} makes 0 of what is below {smallest_positive(self.storage)[1] / 2:.1g}."


def say_number(value: float) -> str:
    """A magnitude with all its digits where there are few."""
    return f"{value:,.0f}" if abs(value) < 1e12 else f"{value:.3g}"


def say_error(value: float | None, metric: str = "rel_l2") -> str:
    """Of a tensor inside, always a share; of outputs, what their metric gives."""
    return "an amount that was not measured" if value is None else say_amount(value, metric)


def is_of_the_precision(findings: Findings) -> bool:
    """Whether a faultless engine of this precision fails as well, and not by far less, as
    ``compare`` explains the failure; or is off by about as much, if just within what is allowed."""
    emulated, signature = findings.emulated, findings.signature
    if emulated is None or signature is None or not signature.outputs:
        return False
    fails = emulated > min(limit(findings.rule, name) for name in signature.outputs)
    return emulated >= signature.error / (FAULTLESS if fails else ALIKE)
