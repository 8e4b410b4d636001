"""ONNX Runtime's graph optimizers that can be switched off, by the level that brings them in. Plain
names, no library imported.

ONNX Runtime accepts any text in ``disabled_optimizers`` without a word, so a misspelt name would
look like an innocent optimizer. The names were read from its own log (each transformer reports
itself) and proven by switching: a transformer's name makes its report vanish, and a level's rule
container vanishes when exactly its rules are named. A test repeats the proof on the installed
version.
"""

from collections.abc import Mapping

from narrowdown.engines.nearest import suggestion

VERIFIED = (
    "1.31"  # the version of ONNX Runtime on which the proof was made, and is repeated by the tests
)

_RULES_BASIC = (
    "CastElimination", "ConvAddFusion", "ConvBNFusion", "ConvMulFusion", "DivMulFusion", "EliminateDropout", "EliminateIdentity",
    "EliminateSlice", "ExpandElimination", "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "LabelEncoderFusion",
    "MatMul_BatchNormalization_Fusion", "NoopElimination", "NotWhereFusion", "Pad_Fusion", "PreShapeNodeElimination",
    "UnsqueezeElimination",
)  # fmt: skip
_RULES_EXTENDED = ("ClipQuantRewrite", "GemmTransposeFusion", "ReluQuantRewrite")
_BASIC = (
    "CommonSubexpressionElimination", "ConstantFolding", "ConstantSharing", "DoubleQDQPairsRemover",
    "FreeDimensionOverrideTransformer", "GeluFusionL1", "LayerNormFusionL1", "MatMulAddFusion", "QDQPropagationTransformer",
    "ReshapeFusion", "SliceConcatToSpaceToDepthFusion", "TransposeOptimizer", "WeightBiasQuantization", "WhereDummyDq",
)  # fmt: skip
_EXTENDED = (
    "AttentionFusion", "BiasDropoutFusion", "BiasGeluFusion", "BiasSkipLayerNormFusion", "BiasSoftmaxFusion",
    "ConvActivationFusion", "DynamicQuantizeMatMulFusion", "EmbedLayerNormFusion", "FastGeluFusion", "GatherSliceToSplitFusion",
    "GatherToSliceFusion", "GeluFusionL2", "GemmActivationFusion", "GroupQueryAttentionFusion",
    "GroupQueryAttentionPreNormFusion", "LayerNormFusionL2", "MatMulActivationFusion",
    "MatMulIntegerToFloatFusion", "MatMulNBitsFusion", "MatMulScaleFusion",
    "MatmulTransposeFusion", "QDQFinalCleanupTransformer", "QDQS8ToU8Transformer", "QDQSelectorActionTransformer",
    "QuickGeluFusion", "SimplifiedLayerNormFusion", "SkipLayerNormFusion", "TransposeOptimizer_CPUExecutionProvider",
)  # fmt: skip
_LAYOUT = ("ConvAddActivationFusion", "NchwcTransformer", "NhwcTransformer")
_ALL = ("FuseFp16InitializerToFp32NodeTransformer",)

# What each level of optimization adds to the one before it.
ADDED: Mapping[str, tuple[str, ...]] = {
    "disabled": (),
    "basic": (*_RULES_BASIC, *_BASIC),
    "extended": (*_RULES_EXTENDED, *_EXTENDED),
    "layout": _LAYOUT,
    "all": _ALL,
}
LEVELS = tuple(ADDED)
# Containers of rules: known, yet never offered to a search, as each rule has a name of its own.
CONTAINERS = ("Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer")


def of_level(level: str) -> tuple[str, ...]:
    """The switchable optimizers that run at a level, sorted. Raises ``KeyError`` for a level that
    does not exist."""
    upto = LEVELS[: LEVELS.index(level) + 1] if level in ADDED else (level,)
    return tuple(sorted({name for step in upto for name in ADDED[step]}))


KNOWN = frozenset((*of_level("all"), *CONTAINERS))


def check_optimizers(names: tuple[str, ...]) -> None:
    """Raises ``ValueError`` with a sentence, and the nearest name, for one that ONNX Runtime would
    silently ignore."""
    for name in names:
        if name not in KNOWN:
            raise ValueError(
                f"ONNX Runtime {VERIFIED} has no optimizer '{name}' and would ignore the name without a word."
                f"{suggestion(name, KNOWN, ' ')}"
            )


def sort_optimizers(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names sorted: their order means nothing. Raises ``ValueError`` as ``check`` does."""
    check_optimizers(names)
    return tuple(sorted(names))
