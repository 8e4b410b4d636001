"""What makes a minimal case fail, named from what was measured, or ``unknown`` honestly: one table
of rules, the first that finds its facts wins.

It assumes that each tensor of the case was scored against the reference once, as the engine computed
it from inputs that were right. A rule is about one node, or about the whole case; it reads scores,
never values, and needs nothing of an engine's kind.

The order is that of certainty. What an earlier search has proved (a switch, a kernel, runs that
differ) needs no number. Then comes what no rounding makes: Inf or NaN, a tensor that is missing,
values that became 0. Rounding that is made larger comes behind it, as it is there in every case.
Last is what only speaks for the engine: an error that the precision does not explain.

The constants are windows: between the values that stand beside them each of the constructions and
walks of tests/engines that reach a cause is named the same, found by asking ``name_cause`` again
over its recorded arguments with one constant changed.

Tried and dropped: an error that grows evenly with depth, by two shares of it, which no construction
reached; a difference twenty times smaller than what it is taken of, which decided nothing beside
the rule that compares it with rounding; a verdict on the scale of a quantized pair, by two shares
seen in one CNN, where its numbers say the same.
"""

from collections.abc import Callable, Iterable

import msgspec

from narrowdown.engines.graph.storage import unit_roundoff
from narrowdown.engines.nearest import NAMED, join_some
from narrowdown.engines.search import range_causes as ranges, rounding_causes as rounding
from narrowdown.engines.search.evidence import (
    FAULTLESS,
    Cause,
    Evidence,
    Facts,
    Inner,
    say_error,
    say_number,
)

INT32 = 2**31 - 1  # where 64-bit integers end on an engine that computes them in 32 (OpenVINO does)


class Rule(msgspec.Struct, frozen=True):
    """``find``: the facts, of a node where the rule is about one; None where the cause is another.
    ``says``: one sentence, in which they stand in braces, as do ``e`` (the evidence) and ``i`` (the
    node). The fact ``beyond`` goes into the cause, too."""

    cause: str
    find: Callable[[Evidence, Inner], Facts | None]
    says: str


class Group(msgspec.Struct, frozen=True):
    """``at``: the nodes that these rules are tried on, one node after the other."""

    at: Callable[[Evidence], Iterable[Inner]]
    rules: tuple[Rule, ...]


def name_cause(evidence: Evidence) -> Cause:
    """What a search before has proved; else the cause by the first rule that has numbers to show,
    ``unknown`` where none has."""
    for cause, holds, said in list_proven(evidence):
        if holds:
            return Cause(cause, said)
    for group in RULES:
        for node in group.at(evidence):
            for rule in group.rules:
                facts = rule.find(evidence, node)
                if facts is not None:
                    said = rule.says.format(e=evidence, i=node, **facts)
                    return Cause(rule.cause, said, str(facts.get("beyond", "")))
    raise AssertionError("the last rule always holds")


def list_proven(e: Evidence) -> tuple[tuple[str, object, str], ...]:
    """What needs no number of the case: the cause, whether it is, and the sentence. A search for
    optimizers that comes to its end accuses no more than a sentence names; one that is cut off
    leaves dozens."""
    found, seen = e.findings, e.findings.signature
    names, first = ", ".join(found.optimizers), ", ".join(found.optimizers[:3])
    many, only = len(found.optimizers), "it" if len(found.optimizers) == 1 else "these"
    locked = e.case.signature or seen
    kind = locked.kind if locked else ""
    counted = (seen.rate if seen else "") or "some"
    return (
        (
            "export",
            e.exported,
            "ONNX Runtime, its optimizers off, is as far off PyTorch: the nodes are not what PyTorch computes.",
        ),
        (
            "optimizer",
            many > NAMED,
            f"Switching {many} optimizers off ({first}, ...) makes the model pass; switching only these on makes it fail. "
            "Fewer may do: the search was ended before all were tried.",
        ),
        (
            "optimizer",
            many,
            f"Switching {names} off makes the model pass; switching only {only} on makes it fail.",
        ),
        (
            "option",
            found.options,
            f"Without {' and '.join(found.options)} the model passes; with nothing else of the engine's own it fails.",
        ),
        ("build-failure", kind == "build", e.said or "The engine refuses it and says nothing."),
        ("crash", kind == "crash", e.said or "The engine's process ends and says nothing."),
        (
            "unknown",
            kind == "check",
            f"Your check fails on {' + '.join(e.case.ops)}; it gives no numbers that would say why.",
        ),
        (
            "kernel",
            found.tactics,
            f"The tactic that bad builds choose for {', '.join(found.tactics)}, forced into a good build, makes it fail.",
        ),
        (
            "nondeterminism",
            e.runs > 1,
            f"One build gives other results for the same input: {counted} runs fail.",
        ),
    )


def on_case(e: Evidence) -> Iterable[Inner]:
    return (e.whole,)


def on_each(e: Evidence) -> Iterable[Inner]:
    return e.made


def find_fusion(e: Evidence, _: Inner) -> Facts | None:
    """A case that is cured by watching its inside."""
    if e.watched is None:
        return None
    named = [f"{name} ({op})" for name, op in zip(e.case.nodes, e.case.ops, strict=False)]
    return {
        "nodes": join_some(named, " and " if len(named) == 2 else ", "),
        "watched": say_error(e.watched, e.part_metric),
        "own": say_error(e.case.own, e.part_metric),
    }


def on_pairs(e: Evidence) -> Iterable[Inner]:
    """The worst pair whose codes are the reference's, and are yet not worth what was quantized: the
    reference is the float model, and the steps of this pair are too wide for its values. Against
    the same pairs what they give is off by the engine's own rounding alone."""
    other = {i.score.name for i in e.inner if not i.score.equal}
    pairs = [
        i
        for i in e.inner
        if i.op == "DequantizeLinear" and not i.score.equal and not other.intersection(i.reads)
    ]
    return sorted(pairs, key=lambda i: i.score.sqnr_db)[:1] if e.against_float else ()


def find_pair(e: Evidence, i: Inner) -> Facts | None:
    """Whether the scale fits its values is seen by how far its codes end at and by one step."""
    step = e.weights.get(i.reads[1], 0.0) if len(i.reads) > 1 else 0.0
    return {
        "step": f", one step is {step:.2g}" if step else "",
        "readers": f"; what reads them is {e.wrong}" if len(e.case.nodes) > 1 else "",
    }


def on_integers(e: Evidence) -> Iterable[Inner]:
    """Integers are exact at every precision: other ones, from the same inputs, are the engine's
    doing."""
    wrong = [i for i in e.made if i.score.exact and not i.score.equal][:1]
    return [i for i in wrong if all(s.equal for s in e.list_read(i))]


def find_narrowed(e: Evidence, i: Inner) -> Facts | None:
    """Integers beyond 32 bits."""
    wide = next(
        (
            s
            for s in (*e.list_read(i), i.score)
            if s.dtype in ("int64", "uint64", "uint32") and s.absmax > INT32
        ),
        None,
    )
    if wide is None:
        return None
    return {
        "wide": wide,
        "largest": say_number(wide.absmax),
        "end": INT32,
        "left": say_number(i.score.actual_absmax),
    }


def find_in_float(e: Evidence, i: Inner) -> Facts | None:
    """Integers that float32 does not hold, off by what their rounding to it makes."""
    largest = max(s.absmax for s in (*e.list_read(i), i.score))
    unit = unit_roundoff("float32")
    if largest <= 1 / unit or i.score.max_abs > 2 * unit * largest:
        return None
    return {
        "largest": say_number(largest),
        "off": say_number(i.score.max_abs),
        "whole": 1 / unit,
    }


def find_imprecise(e: Evidence, _: Inner) -> Facts | None:
    """More than the precision explains."""
    emulated, signature = e.findings.emulated, e.findings.signature
    if emulated is None or not signature or not emulated < signature.error / FAULTLESS:
        return None
    return {
        "precision": e.findings.rule.precision.upper(),
        "emulated": say_error(emulated, e.findings.rule.metric),
        "error": say_error(signature.error, e.findings.rule.metric),
        "beginning": _say_beginning(e),
    }


def _say_beginning(e: Evidence) -> str:
    """Where in the case values begin to differ, with a space in front; empty where that was not
    seen or says nothing new."""
    first = next((i for i in e.made if not i.score.equal), None)
    if first is None or len(e.made) < 2 or any(not s.equal for s in e.list_read(first)):
        return ""
    return (
        f" It begins at {first.called}: from equal inputs it is wrong by up to {first.score.max_abs:.2g}, where the "
        f"largest is {first.score.absmax:.3g}."
    )


_GIVES_0 = (
    "{i.called} gives 0 for values up to {i.score.vanished_max:.2g} ({i.score.vanished} of them)"
)
_ROOTED = _GIVES_0 + ": it reads values up to {read:.2g}, {e.flushed}"
_JUMP = Rule(
    "rounding",
    rounding.find_jump,
    "{first}{i.called} makes {other} of values that are wrong by {small}: it jumps.",
)
_NONFINITE = (
    Rule(
        "mask-constant",
        ranges.find_mask,
        "{i.called} {does}; {e.storage} ends at {e.end}, so it is infinite there{nothing}.",
    ),
    Rule(
        "overflow",
        ranges.find_beyond,
        "{i.called} reaches {reached} in the reference; {e.storage} ends at {e.end}.",
    ),
    Rule(
        "epsilon-underflow",
        ranges.find_divisor_gone,
        "{i.called} is infinite or NaN although its true values stay below {i.score.absmax:.3g}: {became}",
    ),
    Rule(
        "overflow",
        lambda _e, _i: {},  # that it is infinite or NaN is all that is known
        "{i.called} is infinite or NaN; its true values stay below {i.score.absmax:.3g}, so a value on the way overflowed.",
    ),
)


# What the numbers show for certain stands first, then what they make likely.
RULES: tuple[Group, ...] = (
    Group(
        on_case,
        (
            Rule(
                "fusion",
                find_fusion,
                "With its inner tensors watched the case is wrong by {watched} instead of {own}: what the engine makes of "
                "{nodes}, joined, is at fault, and no inner number can say more.",
            ),
        ),
    ),
    Group(
        on_pairs,
        (
            Rule(
                "quantization",
                find_pair,
                "{i.node} gives its values back with an SQNR of {i.score.sqnr_db:.1f} dB, wrong by up to "
                "{i.score.max_abs:.2g}{readers}. The largest value is {i.score.absmax:.3g}, its codes end at "
                "{i.score.actual_absmax:.3g}{step}. Measure the scale again on inputs like yours, or leave the layers that read "
                "it in float.",
            ),
        ),
    ),
    Group(
        # A tensor that the engine does not give, or in another shape.
        lambda e: [i for i in e.made if i.score.problem][:1],
        (
            _JUMP,
            Rule(
                "kernel",
                lambda _, i: {
                    "what": "no output"
                    if i.score.problem == "missing"
                    else "an output of another shape than the reference's"
                },
                "{i.called} gives {what}.",
            ),
        ),
    ),
    Group(
        on_each,
        (
            Rule(
                "weight-overflow",
                ranges.find_weight_beyond,
                "{i.called} reads the weight {name}, which reaches {reached}; {e.storage} ends at {e.end}, so it is infinite "
                "there.",
            ),
        ),
    ),
    Group(lambda e: [i for i in e.made if i.score.new_nonfinite][:1], _NONFINITE),
    Group(
        on_case,
        (
            Rule(
                "accumulation",
                lambda e, _: {} if e.findings.spread else None,
                "No single node adds the error; it grows with depth.",
            ),
        ),
    ),
    Group(
        on_each,
        (
            Rule("epsilon-underflow", ranges.find_root_of_nothing, _ROOTED),
            Rule(
                "underflow",
                ranges.find_subnormal,
                _GIVES_0
                + ", which {e.storage} still holds, as subnormals: the engine makes 0 of what is below {normal:.1g}.",
            ),
            Rule(
                "epsilon-underflow",  # the type has not got the value
                lambda e, i: {} if ranges.is_all_zeros(e, i) else None,
                _GIVES_0 + ", {e.flushed}",
            ),
        ),
    ),
    Group(
        on_each,
        (
            Rule(
                "underflow",
                ranges.find_underflow,
                "{i.called} {does} values of {s.absmax:.2g} at most; below {normal:.1g} {e.storage} has steps of {least:.1g}, "
                "so that they are wrong by {off}.",
            ),
        ),
    ),
    Group(on_each, (_JUMP,)),
    Group(
        on_each,
        (
            Rule(
                "cancellation",
                rounding.find_cancelled,
                "{i.called} takes the difference of values up to {largest:.3g}, which {errors}, and leaves at most "
                "{i.score.absmax:.3g}, wrong by {by}.",
            ),
        ),
    ),
    Group(
        rounding.list_amplifying,
        (
            Rule(
                "epsilon-underflow",
                rounding.find_flushed_input,
                "{said}: it reads values up to {gone.vanished_max:.2g}, {e.flushed}",
            ),
            Rule(
                "cancellation",
                rounding.find_amplified_difference,
                "{said}: {which} {does} and leaves at most {left:.3g}, wrong by {by}.",
            ),
            Rule("rounding", rounding.find_rounded_input, "{said}{reads}."),
        ),
    ),
    Group(
        on_integers,
        (
            Rule(
                "integer-narrowing",
                find_narrowed,
                "{i.called} computes with {wide.dtype} up to {largest}; 32 bits end at {end:,}, and the engine's result, at "
                "most {left}, is what is left of it.",
            ),
            Rule(
                "integer-narrowing",
                find_in_float,
                "{i.called} computes with integers up to {largest} and is wrong by up to {off}, as their rounding to float32 "
                "would be, which holds every whole number up to {whole:,.0f} only.",
            ),
            Rule(
                "kernel",
                lambda _, i: {
                    "off": say_number(i.score.max_abs),
                    "largest": say_number(i.score.absmax),
                },
                "{i.called} gives other integers than the reference from the same inputs: wrong by up to {off}, where the "
                "largest is {largest}.",
            ),
        ),
    ),
    Group(
        on_each,
        (
            Rule(
                "accumulation",
                rounding.find_long_sum,
                "{i.called} is {e.wrong} from inputs that are right; with its sums{many} kept in FP32 the model would be wrong "
                "by {emulated}.",
            ),
        ),
    ),
    Group(
        on_each,
        (
            Rule(
                "cancellation",
                rounding.find_cancelled_terms,
                "{i.called} adds up terms{of} that nearly cancel: it leaves at most {i.score.absmax:.3g}, wrong by {by}. "
                "{e.storage} rounds each factor by {percent:.2g} % at most, which makes as much of a sum only where its terms "
                "are at least {times:,.0f} times larger than it.",
            ),
        ),
    ),
    Group(
        on_case,
        (
            Rule(
                "kernel",
                find_imprecise,
                "{precision} alone explains an error of {emulated}; the engine is wrong by {error}.{beginning}",
            ),
            Rule(
                "unknown",
                lambda e, _: {"ops": " + ".join(e.case.ops), "beginning": _say_beginning(e)},
                "{ops} is {e.wrong}; nothing measured says why.{beginning}",
            ),
        ),
    ),
)
