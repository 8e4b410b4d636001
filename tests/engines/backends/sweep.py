"""One operator at a time: the cases of onnx's own node tests, each also under every older version
of its operator that takes it.

``cases()`` gives small FP32 models with their inputs; ``compare(case)`` holds ONNX's evaluator,
ours in front of it, against ONNX Runtime without optimizations. Where they differ, the node test's
own expected outputs or else OpenVINO settle who is wrong.
"""

import contextlib
import hashlib
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime as ort
from onnx import AttributeProto, ModelProto, defs, helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault

Array = np.ndarray[Any, Any]
NEAR = 1e-4  # of the largest value: FP32 on either side, a hundred times over
# Drawn at random, by a seed that each implementation reads in its own way.
RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)


# Operators of which two attributes are changed at a time: how they meet is where the mistakes are.
PAIRS = frozenset(
    {
        "AveragePool",
        "MaxPool",
        "LpPool",
        "ConvTranspose",
        "Resize",
        "Upsample",
        "GridSample",
        "RoiAlign",
    }
)
MOST_PAIRS = 2  # for each first change: the rest tells the same again
MODES = ["bilinear", "nearest", "bicubic", "linear", "cubic"]
RESIZE = ["nearest", "linear", "cubic"]
BOTH = [0, 1]
VALUES: dict[str, list[Any]] = {
    "auto_pad": ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"],
    **dict.fromkeys(
        ("ceil_mode", "count_include_pad", "keepdims", "align_corners", "exclude_outside", "antialias", "transA", "transB",
         "exclusive", "reverse", "storage_order", "select_last_index", "largest", "sorted", "noop_with_empty_axes",
         "linear_before_reset", "layout", "upper", "inclusive", "across_channels", "normalize_variance", "spatial",
         "keep_aspect_ratio_policy"), BOTH,
    ),
    **{name: [0.5, 2.0] for name in ("alpha", "beta", "gamma", "lambd", "bias")},
    "epsilon": [1e-5, 0.1], "momentum": [0.5, 0.9], "p": [1, 2, 3], "size": [1, 3, 5], "clip": [0.5],
    "direction": ["forward", "reverse", "LEFT", "RIGHT"], "padding_mode": ["zeros", "border", "reflection"],
    "coordinate_transformation_mode": [
        "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_crop_and_resize", "output_half_pixel",
        "half_pixel_symmetric",
    ],
    "nearest_mode": ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
    "cubic_coeff_a": [-0.5, -0.75], "extrapolation_value": [0.0, 2.0], "sampling_ratio": [0, 1, 3], "spatial_scale": [0.5, 1.0],
    "output_height": [1, 4], "output_width": [1, 3], "reduction": ["none", "mean", "sum", "add", "mul", "max", "min"],
    "approximate": ["none", "tanh"], "num_groups": [1, 2], "perm": [], "group": [1, 2],
}  # fmt: skip


class Case(msgspec.Struct, frozen=True):
    """``version``: the operator set that the model is written in; ``expected``: as onnx's node test
    states them, none for a version that no test is written for."""

    name: str
    op: str
    since: int  # the version of the operator itself
    model: ModelProto
    feeds: dict[str, Array]
    expected: tuple[Array, ...] = ()


class Compared(msgspec.Struct, frozen=True):
    """``verdict``: ``agree``; ``ours`` (the evaluator is the wrong one), ``theirs`` (ONNX Runtime
    is), ``open`` (nobody to ask, or all differ); ``refused`` (the evaluator does not run it, and
    ONNX Runtime does); ``not-run`` (ONNX Runtime does not)."""

    case: Case
    verdict: str
    detail: str = ""


def cases(ops: frozenset[str] = frozenset()) -> Iterator[Case]:
    """Every case of the operators ``ops``, or of all; the newest version first."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = collect_testcases(None)
    for test in tests:
        model = test.model
        if model is None or len(model.graph.node) != 1 or model.functions:
            continue
        node = model.graph.node[0]
        if (
            node.domain not in ("", "ai.onnx")
            or node.op_type in RANDOM
            or (ops and node.op_type not in ops)
        ):
            continue
        given, expected = test.data_sets[0]
        if not all(isinstance(a, np.ndarray | np.generic) for a in (*given, *expected)):
            continue
        feeds = {i.name: np.asarray(a) for i, a in zip(model.graph.input, given, strict=True)}
        right = tuple(np.asarray(a) for a in expected)
        if not any(a.dtype == np.float32 for a in (*feeds.values(), *right)):
            continue
        opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        since = defs.get_schema(node.op_type, opset, "").since_version
        newest = Case(f"{test.name} (opset {opset})", node.op_type, since, model, feeds, right)
        for case in (newest, *_older(test.name, model, feeds, opset)):
            yield case
            yield from _varied(case)


def _older(name: str, model: ModelProto, feeds: dict[str, Array], opset: int) -> Iterator[Case]:
    """The same node under each older version of its operator. What is an input now and was an
    attribute then becomes one."""
    op = model.graph.node[0].op_type
    seen = {defs.get_schema(op, opset, "").since_version}
    for version in range(opset - 1, 0, -1):
        try:
            schema = defs.get_schema(op, version, "")
        except defs.SchemaError:
            return
        if schema.since_version in seen or schema.deprecated:
            continue
        seen.add(schema.since_version)
        written = _written(model, feeds, schema, version)
        if written is None:
            continue
        older, fed = written
        try:
            onnx.checker.check_model(older, full_check=True)
        except Exception:
            continue
        yield Case(f"{name} (opset {version})", op, schema.since_version, older, fed)


def _written(
    model: ModelProto, feeds: dict[str, Array], schema: Any, version: int
) -> tuple[ModelProto, dict[str, Array]] | None:
    older = ModelProto()
    older.CopyFrom(model)
    del older.opset_import[:]
    older.opset_import.add(
        domain="", version=max(version, 7)
    )  # ONNX Runtime has nothing older than 7
    if version < 7 and schema.since_version != defs.get_schema(schema.name, 7, "").since_version:
        return None
    older.ir_version = 8
    node = older.graph.node[0]
    newer = defs.get_schema(
        schema.name, next(o.version for o in model.opset_import if not o.domain), ""
    )
    known = {i.name for i in schema.inputs}
    fed = dict(feeds)
    for position in range(len(node.input) - 1, -1, -1):
        formal = newer.inputs[min(position, len(newer.inputs) - 1)].name
        if formal in known or position >= len(newer.inputs):
            continue
        if (
            not node.input[position]
            or formal not in schema.attributes
            or position != len(node.input) - 1
        ):
            if node.input[position] or position != len(node.input) - 1:
                return None
            del node.input[position]
            continue
        value = fed.pop(node.input[position])
        kind = schema.attributes[formal].type
        plain: Any = value.tolist()
        many = int(kind) in (AttributeProto.INTS, AttributeProto.FLOATS)
        with contextlib.suppress(TypeError):
            plain = list(plain) if many else plain[0] if isinstance(plain, list) else plain
        node.attribute.append(helper.make_attribute(formal, plain, attr_type=int(kind)))
        keep = [i for i in older.graph.input if i.name != node.input[position]]
        del older.graph.input[:]
        older.graph.input.extend(keep)
        del node.input[position]
    kept = [a for a in node.attribute if a.name in schema.attributes]
    dropped = [a for a in node.attribute if a.name not in schema.attributes]
    if any(not _is_default(a, newer) for a in dropped):
        return None
    del node.attribute[:]
    node.attribute.extend(kept)
    for output in older.graph.output:
        output.type.tensor_type.ClearField("shape")
    return older, fed


def _varied(case: Case) -> Iterator[Case]:
    """The case with one attribute changed, for some operators two; whether that makes sense ONNX
    Runtime will say."""
    seen = {_text(case.model.graph.node[0])}
    for name, model in _changed(case.model, case.feeds):
        texts = [(name, model)]
        if case.op in PAIRS:
            twice = [(f"{name}, {more}", changed) for more, changed in _changed(model, case.feeds)]
            texts += sorted(twice, key=lambda pair: _drawn(case.name, pair[0]))[:MOST_PAIRS]
        for said, varied in texts:
            if (text := _text(varied.graph.node[0])) not in seen:
                seen.add(text)
                yield Case(f"{case.name}, {said}", case.op, case.since, varied, case.feeds)


def _drawn(*texts: str) -> bytes:
    """The same few of many, on every machine."""
    return hashlib.sha256("/".join(texts).encode()).digest()


def _text(node: Any) -> bytes:
    copy = type(node)()
    copy.CopyFrom(node)
    ordered = sorted(copy.attribute, key=lambda a: a.name)
    del copy.attribute[:]
    copy.attribute.extend(ordered)
    return copy.SerializeToString(deterministic=True)


def _changed(model: ModelProto, feeds: dict[str, Array]) -> Iterator[tuple[str, ModelProto]]:
    node = model.graph.node[0]
    version = next(o.version for o in model.opset_import if not o.domain)
    schema = defs.get_schema(node.op_type, version, "")
    first = feeds[node.input[0]] if node.input and node.input[0] in feeds else np.zeros(())
    spatial = max(1, first.ndim - 2)
    for name in schema.attributes:
        for value in _values(node.op_type, name, first.ndim, spatial):
            changed = ModelProto()
            changed.CopyFrom(model)
            made = changed.graph.node[0]
            kept = [
                a
                for a in made.attribute
                if a.name != name and not (name == "auto_pad" and a.name == "pads")
            ]
            del made.attribute[:]
            made.attribute.extend([*kept, helper.make_attribute(name, value)])
            for output in changed.graph.output:
                output.type.tensor_type.ClearField("shape")
            yield f"{name}={value}", changed


def _values(op: str, name: str, rank: int, spatial: int) -> list[Any]:
    if name == "axis":
        return list(range(-rank, rank))
    if name == "axes" and rank:
        return [[0], [-1], list(range(rank))[-2:]]
    if name == "mode":
        return {
            "RoiAlign": ["avg", "max"],
            "Pad": ["constant", "reflect", "edge"],
            "GridSample": MODES,
        }.get(op, RESIZE)
    if name in ("kernel_shape", "strides", "dilations"):
        return [[1] * spatial, [2] * spatial, [3] * spatial]
    if name == "pads" and op != "Pad":
        return [
            [0] * 2 * spatial,
            [1] * 2 * spatial,
            [1, *[0] * (2 * spatial - 1)],
            [*[0] * (2 * spatial - 1), 1],
        ]
    if name == "reduction" and "Loss" in op:
        return ["none", "mean", "sum"]
    if name == "output_padding":
        return [[1] * spatial]
    if name == "blocksize":
        return [2]
    return VALUES.get(name, [])


def _is_default(attribute: AttributeProto, schema: Any) -> bool:
    stated = (
        schema.attributes[attribute.name].default_value
        if attribute.name in schema.attributes
        else None
    )
    return stated is not None and helper.get_attribute_value(stated) == helper.get_attribute_value(
        attribute
    )


def compare(case: Case) -> Compared:
    try:
        right = _onnxruntime(case)
    except Exception as error:
        return Compared(case, "not-run", str(error)[:120])
    try:
        got = _evaluated(case)
    except EngineFault as error:
        return Compared(case, "refused", str(error)[:160])
    if (apart := _apart(got, right)) <= NEAR:
        return Compared(case, "agree")
    detail = (
        f"{apart:.2g} apart" if np.isfinite(apart) else f"{_shapes(got)} against {_shapes(right)}"
    )
    third = case.expected or _openvino(case)
    if not third:
        return Compared(case, "open", detail)
    mine, theirs = _apart(got, third), _apart(right, third)
    if mine <= NEAR < theirs:
        return Compared(case, "theirs", detail)
    return Compared(case, "ours" if theirs <= NEAR < mine else "open", detail)


def _evaluated(case: Case) -> list[Array]:
    built = make("reference").build(BuildRequest(model=case.model, weights_dir="."))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = built.run(case.feeds)
    return [got[o.name] for o in case.model.graph.output if o.name in got]


def _onnxruntime(case: Case) -> list[Array]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(a) for a in session.run(None, case.feeds)]


def _openvino(case: Case) -> tuple[Array, ...]:
    try:
        built = make("openvino:precision=f32").build(
            BuildRequest(model=case.model, weights_dir=".")
        )
        got = built.run(case.feeds)
    except Exception:
        return ()
    return tuple(got[o.name] for o in case.model.graph.output if o.name in got)


def _apart(a: list[Array] | tuple[Array, ...], b: list[Array] | tuple[Array, ...]) -> float:
    """The largest difference over all outputs, as a part of the largest value; infinite for another
    shape or other non-finite values."""
    if len(a) != len(b):
        return float("inf")
    worst = 0.0
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape or x.dtype.kind != y.dtype.kind:
            return float("inf")
        if x.dtype.kind in "OSUT":
            worst = max(worst, 0.0 if np.array_equal(x, y) else 1.0)
            continue
        x, y = x.astype(np.float64), y.astype(np.float64)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return float("inf")
        finite = np.isfinite(x)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            return float("inf")
        scale = float(np.abs(y[finite]).max(initial=0.0)) or 1.0
        worst = max(worst, float(np.abs(x[finite] - y[finite]).max(initial=0.0)) / scale)
    return worst


def _shapes(arrays: list[Array]) -> str:
    return "+".join("x".join(map(str, a.shape)) or "scalar" for a in arrays)


WORDS = {
    "ours": "the evaluator is wrong", "theirs": "ONNX Runtime is off the test's numbers, or off OpenVINO",
    "open": "nobody settles it", "refused": "the evaluator does not run it",
}  # fmt: skip


def page(
    rows: dict[tuple[str, int, str], list[Compared]], counts: dict[str, int], versions: int
) -> str:
    """campaigns/evaluator.md: what is left."""
    lines = [
        "# ONNX's evaluator, operator by operator",
        "",
        "`reference:precision=fp64` judges other engines ([reference](../docs/tolerance.md#reference)), so it is held against",
        "ONNX Runtime: every case of onnx's own node tests in FP32, each under every older version of its operator, and with one",
        "attribute changed (for pooling and resampling two). Where they differ, the test's numbers or else OpenVINO settle it.",
        "Operators that onnx's evaluator has wrong are ours (`engines/backends/reference/operators/`); on Hardmax, LpPool and",
        "RoiAlign it abstains.",
        "",
        f"{versions} versions of operators; {counts['agree']:,} cases agree, {counts['not-run']:,} are none that ONNX Runtime",
        "runs. What is left:",
        "",
        "| operator | since opset | cases | what | first |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (op, since, verdict), told in sorted(rows.items()):
        first = f"`{told[0].case.name}`: {told[0].detail}".replace("|", "/").replace("\n", " ")[
            :150
        ]
        lines.append(f"| {op} | {since} | {len(told)} | {WORDS[verdict]} | {first} |")
    again = "NARROWDOWN_WRITE_DOCS=1 make test-slow ARGS=tests/engines/backends/test_operators.py"
    return "\n".join([*lines, "", f"Written by `{again}`.", ""])
