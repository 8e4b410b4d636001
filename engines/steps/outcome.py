"""What each step may answer. Flow files name these fields in ``when``, templates and ``evidence``; keep them plain.

Errors are badness under the session's metric; ``None`` where not measured. Every field has a default, so that a step that was
cut short still says what it knows. ``message`` is one sentence for people in each.
"""

from typing import Literal

import msgspec


class CompareOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """compare: the whole model on every sample (node ``reproduce``)."""

    # reference: the reference itself is suspect; built: it builds, and cannot be run here
    verdict: Literal["fails", "passes", "reference", "built", "unresolved"] = "unresolved"
    failure: Literal["accuracy", "crash", "build", "check", "none"] = "none"  # how it fails
    error: float | None = None
    tolerance: float = 0.0
    metric: str = "rel_l2"
    precision: str = "fp32"  # that the default tolerance follows from
    worst_output: str = ""  # the output that is furthest off
    worst_sample: str = ""  # where it is
    margin: float | None = None  # how many times the worst error fits into what is allowed there
    samples: int = 0
    samples_failing: int = 0
    nonfinite: bool = False  # the engine gives infinite or NaN where the reference does not
    emulated_error: float | None = None  # what a faultless engine of this precision would give
    # whose fault it looks like; keeps-higher: the engine computes more exactly than it claims
    explanation: Literal["engine", "precision", "keeps-higher", "unknown"] = "unknown"
    reference_error: float | None = None  # how far the reference is from its judge
    reference_judge: str = ""  # what judged it, "" = not judged
    reference_steady: bool = True  # its second run gave the same as its first
    looks: int = 0  # runs or builds looked at
    failures: int = 0  # of them
    interval_low: float = 0.0
    interval_high: float = 1.0
    more_looks: int = 0  # looks without a failure that would rule out the next rarer fault at 95 %
    message: str = ""


class SanitizeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # of the cleaned model; could-not: it does not run, or that told nothing
    verdict: Literal["fails", "passes", "could-not"] = "could-not"
    nodes_before: int = 0
    nodes_after: int = 0
    error: float | None = None  # of the cleaned model
    error_before: float | None = None  # of the original
    change: Literal["helps", "hurts", "none"] = "none"  # whether the cleaned model is further off or less
    goes_on: Literal["original", "sanitized"] = "original"  # which model the search goes on with
    reason: str = ""
    message: str = ""


class InputsOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # helps: real inputs pass; no: they fail too; only-real: they alone fail
    verdict: Literal["helps", "no", "only-real", "none-given"] = "none-given"
    real_error: float | None = None  # the worst on real inputs
    random_error: float | None = None  # the worst on random ones
    real_samples: int = 0
    real_failing: int = 0  # of them
    random_samples: int = 0
    random_failing: int = 0  # of them
    guesses: str = ""  # what each input was taken to be for
    message: str = ""


class RepeatOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # rebuilds-differ: some builds pass; same-engine: some runs of one build do
    behaviour: Literal["steady", "rebuilds-differ", "same-engine", "unresolved"] = "unresolved"
    builds: int = 0
    runs: int = 0
    failures: int = 0  # failing builds (or runs, for same-engine)
    interval_low: float = 0.0
    interval_high: float = 1.0
    bitwise_varies: bool = False  # runs of one build differ, if only in the last digit
    more_builds: int = 0  # passing builds in a row that would settle it at 95 %
    more_looks: int = 0  # the same for runs where none failed
    switchable: bool = False  # the engine can switch its optimizers or tactics: tactics is worth asking first
    passed: int = 0  # with ``until``: builds or checks
    message: str = ""


class NondeterminismOutcome(msgspec.Struct, frozen=True, kw_only=True):
    nondeterministic: bool = False  # runs of one build differ
    first_tensor: str = ""  # that differs, in the order of the model
    first_node: str = ""  # that makes it
    first_op: str = ""  # its operator
    runs: int = 0
    failures: int = 0
    single_thread: Literal["cures", "no", "not-tried"] = "not-tried"  # whether one thread cures it
    message: str = ""


class TacticsOutcome(msgspec.Struct, frozen=True, kw_only=True):
    found: bool = False  # a choice of the engine is at fault
    suspects: str = ""  # comma separated
    necessary: bool = False  # off: passes
    sufficient: bool = False  # only it (and its enablers) on: fails
    enablers: str = ""  # needed beside the suspects for the failure to show, comma separated
    good: int = 0  # builds that passed
    bad: int = 0  # builds that failed
    kind: Literal["optimizer", "option", "tactic", "none"] = "none"  # what the suspects are
    message: str = ""


class LayerwiseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # what becomes of the failure when every tensor can be read
    observer: Literal["reproduces", "improves", "cannot-run"] = "cannot-run"
    tensors: int = 0  # that were read
    bad: int = 0  # of them over tolerance
    skipped: int = 0  # that could not be read
    culprit: str = ""  # the node whose own error reaches the outputs
    culprit_op: str = ""  # its operator
    first_bad: str = ""  # the first tensor over tolerance, in the order of the model
    first_nonfinite: str = ""  # the first that is infinite or NaN where the reference is not
    inherited: float | None = None  # the culprit's error in the whole model, as it arrives
    added: float | None = None  # its error when its inputs are exact
    effect: float | None = None
    spread: bool = False  # no node makes most of the error
    largest_part: float | None = None  # where it is spread: the largest share of it that an eighth of the model makes
    harmless: int = 0  # bad tensors whose error reaches no output
    groups: int = 0  # layers of the built engine that stand for several nodes, where it tells
    group: str = ""  # what it computes together with the culprit
    profile: str = ""  # error by depth, log10, as a sparkline-ready comma list
    reason: str = ""
    message: str = ""


class ExtractOutcome(msgspec.Struct, frozen=True, kw_only=True):
    reproduced: bool = False  # the part alone fails in the same way
    nodes: int = 0
    ops: str = ""
    names: str = ""
    own: float | None = None
    effect: float | None = None
    grown: int = 0  # how often the cut was grown
    # it passes when fed exactly, and fails when fed as the engine would have stored it
    needs_higher_inputs: bool = False
    reason: str = ""
    message: str = ""


class ReduceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Literal["reduced", "not-reproduced", "unresolved"] = "unresolved"
    nodes_before: int = 0
    nodes_after: int = 0
    ops: str = ""
    names: str = ""
    own: float | None = None
    effect: float | None = None
    probes: int = 0  # of the search
    verifications: int = 0  # probes that check the result: the endpoints, each node left out, fresh builds
    unresolved: int = 0  # probes that neither passed nor failed
    verified: str = ""  # fresh builds that failed, of those made: k/n
    minimal: bool = False
    reason: str = ""
    message: str = ""


class DoubleCheckOutcome(msgspec.Struct, frozen=True, kw_only=True):
    visits_left: int = 0  # how often the settings may still be changed
    unresolved: int = 0  # probes of the search that neither passed nor failed
    causes: str = ""  # "build-failed 4, harmless 2"
    # what to change next
    suggestion: Literal["tolerance", "metric", "regex", "sample", "linear", "seed", "stop"] = "stop"
    culprits: int | None = None  # found in earlier rounds
    message: str = ""


class ConfirmOutcome(msgspec.Struct, frozen=True, kw_only=True):
    confirmed: bool = False  # the case fails when built afresh
    failures: int = 0
    looks: int = 0
    interval_low: float = 0.0
    interval_high: float = 1.0
    nodes: int = 0
    nodes_before: int = 0
    ops: str = ""
    names: str = ""
    cause: str = "unknown"
    evidence: str = ""  # the numbers that show the cause, one sentence
    own: float | None = None
    effect: float | None = None
    culprits: int = 0  # found so far, this one among them
    alike: int = 0  # more of them found in this step, as the reference foretells the same fault there
    patched_fails: bool = False  # the whole model still fails with this and earlier culprits patched
    patched_error: float | None = None  # the whole model's then
    message: str = ""


class WorkaroundOutcome(msgspec.Struct, frozen=True, kw_only=True):
    holds: bool = False  # every sample passes with it
    # what is done; precision: nodes kept in FP32
    kind: Literal["precision", "optimizer", "threads", "option", "tactic", "none"] = "none"
    what: str = ""  # what is switched off, comma separated
    keep: int = 0
    names: str = ""
    samples_ok: int = 0
    samples: int = 0
    error: float | None = None
    tolerance: float = 0.0
    margin: float | None = None
    minimal: bool = False
    cost: str = ""  # what it does to time or size, one phrase
    cause: str = "unknown"
    culprits: int | None = None  # with a minimal case
    tried: str = ""  # what casts in the model do, where the engine is free to ignore them
    message: str = ""


class PrecisionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # not-enough: even with every node kept it fails
    outcome: Literal["found", "none-needed", "not-enough"] = "not-enough"
    keep: int = 0
    names: str = ""
    minimal: bool = False
    samples_ok: int = 0
    samples: int = 0
    error: float | None = None
    margin: float | None = None
    builds: int = 0
    message: str = ""


class QuantizationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """quantization: the layers of a Q/DQ model against the float one. SQNR in dB, 999 where nothing is lost."""

    # not-enough: even with every layer in float it fails
    outcome: Literal["found", "none-needed", "not-enough"] = "not-enough"
    layers: int = 0  # quantized by pairs
    whole: int = 0  # nodes that cannot be left in float: quantized in themselves, or fed codes of unknown origin
    worst: str = ""  # the layer with the lowest SQNR alone
    worst_db: float | None = None  # its SQNR
    keep: int = 0  # layers to leave in float
    names: str = ""
    minimal: bool = False
    samples_ok: int = 0
    samples: int = 0
    error: float | None = None  # with those layers in float; without any where none is needed
    tolerance: float = 0.0
    margin: float | None = None
    builds: int = 0
    weights: Literal["original", "dequantized"] = "dequantized"  # of the reference
    reference: str = ""  # the engine spec of the float model
    message: str = ""
