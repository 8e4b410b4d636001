"""The causes that can be named: the word, what it means, and what must have been measured before it
is said.

One entry a cause; its rule is a function in ``engines.search.cause``. Screens, plans and
docs/concepts.md read them here.
"""

import msgspec


class CauseKind(msgspec.Struct, frozen=True):
    """``plain``: what goes wrong, as the end of a sentence. ``measured``: what must have been seen.
    ``card``: the term (a file of ``flows/terms``) that explains it. ``unfit``: the right values do
    not fit into the engine's storage type, so they cannot be fed to it as a patch either.
    ``whose``: who is to hear of it where that is nobody of the engine's."""

    name: str
    plain: str
    measured: str
    card: str = ""
    unfit: bool = False
    whose: str = ""


KINDS: tuple[CauseKind, ...] = (
    CauseKind(
        "optimizer", "an optimizer of the engine changes the answer",
        "with it off, the model passes; with nothing but it on, it fails", "optimizer",
    ),
    CauseKind(
        "option", "an option of the engine changes the answer",
        "at its plain value, the model passes; with nothing else of the engine's own, it fails", "optimizer",
    ),
    CauseKind(
        "nondeterminism", "the same input gives another result from run to run", "runs of one build differ", "nondeterminism"
    ),
    CauseKind(
        "quantization", "small integers are too coarse for these values",
        "codes are right, and what they are worth is not: the SQNR of the pair", "quantization",
        whose="whoever quantized the model",
    ),
    CauseKind(
        "fusion", "it is wrong only where the engine joins these nodes into one",
        "with its inner tensors watched, the case is right", "fusion",
    ),
    CauseKind(
        "mask-constant", "a huge constant of a mask does not fit into this precision",
        "infinite where the reference holds 1e8 or more, past the end of the storage type, and the node reads a value as large; "
        "or NaN of nothing, where it reads a constant as large",
        "overflow", unfit=True,
    ),
    CauseKind(
        "weight-overflow", "a weight is larger than the largest number of this precision",
        "a weight that the case reads lies past the end of the storage type", "overflow",
    ),
    CauseKind(
        "overflow", "values grow past the largest number of this precision",
        "infinite or NaN where the reference lies past the end of the storage type", "overflow", unfit=True,
    ),
    CauseKind(
        "epsilon-underflow", "a tiny constant that guards a division becomes 0",
        "0 where the reference is not, below the smallest number of the storage type, and nothing else wrong or a division by it",
        "epsilon", unfit=True,
    ),
    CauseKind(
        "underflow", "values are so small that this precision keeps few of their digits, or none",
        "all values of a tensor lie below the smallest normal number of the storage type, and it is wrong by more than four "
        "roundings; or all became 0 although the type holds them",
    ),
    CauseKind(
        "accumulation", "many small rounding errors add up",
        "the error grows over the whole case, and no node adds a quarter of it; or one sum is wrong where FP32 sums are right, "
        "by half at most, or by more where it has so many terms that it stops growing",
    ),
    CauseKind(
        "rounding", "a rounded value tips a decision or an index",
        "a jump (TopK, ArgMax, NMS, a cast to integers) at least ten times larger than the difference that it reads; or a node "
        "right when fed exactly and wrong when fed as stored, in which nothing was seen to cancel",
    ),
    CauseKind(
        "cancellation", "nearly equal values are subtracted, and what rounding did to them is left",
        "a difference at least 20 times smaller than its operands, wrong by more than they are; or a part that is right "
        "only when fed exactly, in which a sum, a difference or what takes a mean off is wrong by four times as much as "
        "what it reads; or what rounding left of a difference, made 20 times larger than its values are; or a sum of "
        "products that is wrong by far more than rounding its factors can make where terms do not cancel, and rounding is "
        "all that is wrong",
        "cancellation",
    ),
    CauseKind(
        "integer-narrowing", "integers are larger than the type that the engine computes in can hold",
        "other integers from equal inputs, where 64-bit values pass 2,147,483,647, or where values past 16,777,216 are off as "
        "their rounding to float32 would be",
    ),
    CauseKind(
        "kernel", "the engine computes this part wrongly",
        "a tactic that, forced, makes good builds fail; or other integers from equal inputs; a wrong shape; or ten times worse "
        "than that precision alone explains (FP16 and BF16: the emulation; FP32: the reference's distance from float64)",
    ),
    CauseKind(
        "export", "the ONNX model does not compute what the PyTorch module computes",
        "fed with PyTorch's own values, the part of the ONNX model is off on the reference, and in float64",
        whose="whoever wrote the module, or PyTorch's exporter (https://github.com/pytorch/pytorch/issues)",
    ),
    CauseKind("build-failure", "the engine does not take this part", "it does not parse or build; its own words are shown"),
    CauseKind("crash", "the engine's process ends at this part", "it dies of a signal while it builds or runs this part"),
    CauseKind(
        "unknown", "none of the causes that are known fits the numbers", "none of these; where values begin to differ is said"
    ),
)  # fmt: skip

_BY_NAME = {kind.name: kind for kind in KINDS}
_OTHER = CauseKind("", "", "")  # a name that another version gave


def find_cause(name: str) -> CauseKind:
    """The cause of a name; one that says nothing for a name that is not known."""
    return _BY_NAME.get(name, _OTHER)
