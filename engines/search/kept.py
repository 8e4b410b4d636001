"""What a search for nodes to keep in higher precision found: as a workaround, and in words."""

import msgspec

from narrowdown.engines.asking import StepRefused
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.compare.say import say_amount, say_most
from narrowdown.engines.findings import Workaround
from narrowdown.engines.graph.quantized import find_leavable_layers
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import Measure
from narrowdown.engines.search.switches import find_exact
from narrowdown.engines.search.unseen import say_tried


class Cure(msgspec.Struct, frozen=True):
    """What was found to help. Without a ``workaround``, ``message`` says why there is none.
    ``files``: artifact name -> digest; ``probe``: the question that shows it again, where the
    workaround does not say so itself."""

    message: str
    workaround: Workaround | None = None
    files: dict[str, str] = {}
    probe: Measure | None = None


class Kept(msgspec.Struct, frozen=True):
    """``outcome`` as in PrecisionOutcome; ``tried``: the set that it is about, as a workaround,
    which it is only where it was ``found``. ``plain``: the error with nothing kept. ``reason``: why
    the set could not be measured."""

    outcome: str
    tried: Workaround
    files: dict[str, str] = {}
    builds: int = 0
    plain: float = 0.0
    reason: str = ""

    @property
    def found(self) -> Workaround | None:
        return self.tried if self.outcome == "found" else None


def list_keepable(ask: Inquiry) -> tuple[int, ...]:
    """The nodes that can be kept in higher precision here. Raises StepRefused where there are
    none."""
    if ask.ctx.can("keep", untold=True):
        return tuple(range(len(ask.index.nodes)))
    found = tuple(layer.node for layer in find_leavable_layers(ask.index))
    if not found:
        raise StepRefused(
            f"{ask.ctx.engine} cannot keep single nodes in higher precision: {ask.ctx.engine_info.reason('keep')}"
        )
    return found


def say_kept(ask: Inquiry, kept: Kept) -> str:
    """What the search for nodes to keep came to, in sentences."""
    cure, metric = kept.tried, ask.criterion.metric
    if kept.outcome == "none-needed":
        return "Nothing needs higher precision: the model passes as it is."
    if kept.outcome == "not-enough" and kept.reason:
        return f"With everything in FP32 the model did not run, so precision cannot be judged: {kept.reason}"
    if kept.outcome == "not-enough":
        before, after, allowed = (
            say_amount(error, metric) for error in (kept.plain, cure.error, ask.criterion.tolerance)
        )
        exact = find_exact(ask.ctx.engine, ask.ctx.engine_info)
        anew = f" Layers in FP32 may compute in less here: try again with --engine {exact}."
        return (
            f"With everything in FP32 the error is {after} in place of {before}, and {allowed} is allowed: precision alone "
            f"does not make it right.{anew if exact else ''}"
        )
    if kept.outcome == "whole":
        return (
            f"It passes with all of the {len(cure.keep_names)} nodes in FP32, and with no smaller set that was tried: that "
            "is the model in FP32, and no workaround."
        )
    return (
        f"Keeping {cure.cost.partition(';')[0]}: {say_tried(cure)}. With it {say_most(cure.error, ask.criterion)}. "
        f"Kept: {join_some(cure.keep_names)}."
    )
