"""ONNX Runtime's graph optimizers that can be switched off, by the level that brings them in. Plain
names, no library imported.

ONNX Runtime accepts any text in ``disabled_optimizers`` without a word, so a misspelt name would
look like an innocent optimizer. The names were read from its own log (each transformer reports
itself) and proven by switching: a transformer's name makes its report vanish, and a level's rule
container vanishes when exactly its rules are named. A test repeats the proof on the installed
version.
"""

from collections.abc import Iterable, Mapping

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


# Options of providers that choose another way to compute the same: key -> its default, and the value
# that leaves the provider the least freedom. From the public headers (cuda_provider_options.h,
# tensorrt_provider_options.h) and pages; types, as FP16 and TF32, are no such choice.
PROVIDERS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "cuda": {
        "cudnn_conv_use_max_workspace": ("1", "0"), "enable_cuda_graph": ("0", "0"), "fuse_conv_bias": ("0", "0"),
        "enable_skip_layer_norm_strict_mode": ("0", "1"), "prefer_nhwc": ("0", "0"), "tunable_op_enable": ("0", "0"),
    },
    "tensorrt": {
        "trt_build_heuristics_enable": ("0", "0"), "trt_builder_optimization_level": ("3", "0"),
        "trt_context_memory_sharing_enable": ("0", "0"), "trt_cuda_graph_enable": ("0", "0"),
        "trt_layer_norm_fp32_fallback": ("0", "1"), "trt_sparsity_enable": ("0", "0"),
    },
    "qnn": {"htp_graph_finalization_optimization_mode": ("0", "0")},
}  # fmt: skip


def of_provider(provider: str, told: Mapping[str, str]) -> tuple[str, ...]:
    """The provider's options that are not at their plainest. ``told``: those that it is given."""
    table = PROVIDERS.get(provider, {})
    return tuple(key for key, (usual, plain) in table.items() if told.get(key, usual) != plain)


def of_graph(names: Iterable[str]) -> list[str]:
    """Those that are optimizers, not options of a provider."""
    return [name for name in names if name in KNOWN]


def of_level(level: str) -> tuple[str, ...]:
    """The switchable optimizers that run at a level, sorted. Raises ``KeyError`` for a level that
    does not exist."""
    upto = LEVELS[: LEVELS.index(level) + 1] if level in ADDED else (level,)
    return tuple(sorted({name for step in upto for name in ADDED[step]}))


KNOWN = frozenset((*of_level("all"), *CONTAINERS))
SWITCHABLE = KNOWN | {key for table in PROVIDERS.values() for key in table}


def sort_optimizers(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names sorted: their order means nothing. Raises ``ValueError`` with a sentence, and the
    nearest name, for one that ONNX Runtime would silently ignore."""
    for name in names:
        if name not in SWITCHABLE:
            raise ValueError(
                f"ONNX Runtime {VERIFIED} has no optimizer '{name}' and would ignore the name without a word."
                f"{suggestion(name, SWITCHABLE, ' ')}"
            )
    return tuple(sorted(names))
